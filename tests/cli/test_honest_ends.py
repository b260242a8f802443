"""A run in which nothing was learned says so, with the likely causes."""

from helpers.command_line import run


def test_training_and_evaluation_say_that_nothing_was_learned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--types", 2, "--channels", 8, "--limit", 64, "--epochs", 1, "--output", "out"]
    trained = run("train", "--dataset", "digits", *small, "--learning-rate", "1e-9")
    assert trained.exit_code == 0, trained.output
    assert "\nbalanced accuracy " in trained.stdout and "the largest class is 10." in trained.stdout
    assert "the margin loss is " in trained.stderr and "reach 0.524: check, in " in trained.stderr
    evaluated = run("evaluate", "--checkpoint", "out")
    assert "\n  balanced     " in evaluated.stdout
    warned = [line for line in trained.stderr.splitlines() if line.startswith("WARN")]
    assert warned and warned == [
        line for line in evaluated.stderr.splitlines() if line.startswith("WARN")
    ]
