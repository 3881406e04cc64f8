"""From a report to text; nothing here measures, decides or writes."""
