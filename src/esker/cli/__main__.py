"""`python -m esker.cli` is `esker`."""

from esker.cli import main

if __name__ == "__main__":
    main()
