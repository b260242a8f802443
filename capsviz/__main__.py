"""`python -m capsviz`."""

from capsviz.cli import main

if __name__ == "__main__":
    main(prog_name="capsviz")
