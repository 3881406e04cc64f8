"""One file per migration. A migration that was released is never changed."""
