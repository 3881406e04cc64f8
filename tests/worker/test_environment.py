"""The environment info of a process."""

import pytest

from tfbench.facts import describe, library_variables, machine


def test_this_process_is_described():
    found = describe()
    assert found["machine"]["processors"]
    assert "numpy" in found["packages"]


@pytest.mark.parametrize("module", ["NVIDIA UNIX x86_64 Kernel Module", "NVIDIA UNIX Open Kernel Module for x86_64"])
def test_gpus_are_read_from_the_drivers_files(tmp_path, module):
    assert "gpus" not in machine(tmp_path)
    driver = tmp_path / "proc/driver/nvidia"
    for number in (0, 1):
        (driver / f"gpus/000{number}").mkdir(parents=True)
        (driver / f"gpus/000{number}/information").write_text("Model: \t\t NVIDIA H200\nIRQ: 7\n")
    (driver / "version").write_text(f"NVRM version: {module}  550.54.15  Tue Mar  5\n")
    found = machine(tmp_path)
    assert (found["gpus"], found["driver"]) == ("NVIDIA H200, NVIDIA H200", "550.54.15")


def test_what_only_decides_what_is_printed_is_no_variable_of_a_library():
    printed = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_DEPRECATION_WARNINGS": "1", "TF_LOG": "debug", "HOME": "/"}
    read = {"TF_ENABLE_ONEDNN_OPTS": "0", "KERAS_BACKEND": "jax", "OMP_NUM_THREADS": "1"}
    assert library_variables({**printed, **read}) == read


def test_variables_of_terraform_are_not_reported(monkeypatch):
    for name in ("TF_TOKEN_app_terraform_io", "TF_VAR_password", "TF_CLI_CONFIG_FILE", "TF_LOG"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("TF_DATA_EXPERIMENT_OPT_IN", "all")
    settings = describe()["settings"]
    assert "secret" not in settings.values()
    assert settings["TF_DATA_EXPERIMENT_OPT_IN"] == "all"
