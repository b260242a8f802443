"""Run the command line with `python -m capsviz`."""

from capsviz.cli import run

if __name__ == "__main__":
    run()
