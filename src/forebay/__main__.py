"""``python -m forebay`` is the command line."""

from forebay.app.cli import main

if __name__ == "__main__":
    main()
