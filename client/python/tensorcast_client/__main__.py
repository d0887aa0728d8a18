"""python -m tensorcast_client run SCRIPT [ARGUMENT ...], or run -m MODULE [ARGUMENT ...]: see run_program.py."""
import sys

from tensorcast_client.run_program import main

if __name__ == "__main__":
    main(sys.argv[1:])
