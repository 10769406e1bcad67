"""`python -m acclimate` is the command line."""

from acclimate.cli import main

if __name__ == "__main__":
    main()
