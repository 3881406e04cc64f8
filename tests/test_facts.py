"""What a process says of itself."""

from tfbench import cli
from tfbench.facts import foreign_distribution


def install(folder, entry_points=""):
    info = folder / "tfbench-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tfbench\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def test_another_project_of_the_same_name_is_named(tmp_path, monkeypatch, capsys):
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert foreign_distribution().startswith("the distribution tfbench 1.0.0 in this environment is another project")
    cli.main(["envs", "list"])
    assert "pip uninstall tfbench" in capsys.readouterr().err


def test_an_older_installation_of_this_project_is_none(tmp_path, monkeypatch):
    install(tmp_path, "[pytest11]\ntfbench.plugin = tfbench.plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert foreign_distribution() == ""
