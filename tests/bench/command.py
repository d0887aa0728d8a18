"""What the command lines of the benchmarks have in common, and where their tables go."""
import argparse
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from report import tight


def arguments(doc, quick, rounds, sizes=None, size="bytes of the checkpoint", data="room for it on the disk to measure", more=()):
    """rounds: without --rounds and --quick; sizes: of --quick and else; quick, size, data: what --help says of these, None where there
    is no such option; more: {name: what add_argument() gets}."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    for name, how in dict(more).items():
        parser.add_argument(name, **how)
    if quick:
        parser.add_argument("--quick", action="store_true", help=f"{quick}, one round: does everything work?")
    parser.add_argument("--rounds", type=int)
    if sizes:
        parser.add_argument("--size", type=int, help=size)
    if data:
        parser.add_argument("--data", type=Path, help=f"{data}; default BUILD/bench/data")
    parser.add_argument("--write", type=Path, help="the Markdown file whose measured part is replaced")
    parser.set_defaults(quick=False, data=None)
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.data = (options.data or options.build / "bench" / "data").resolve()
    options.rounds = options.rounds or (1 if options.quick else rounds)
    if sizes:
        options.size = options.size or sizes[not options.quick]
    return options


def publish(options, kind, body):
    """Prints the Markdown, and puts it where the document of --write has what was measured of that kind before."""
    print(body)
    if options.write:
        name = f"measured {kind}".strip()
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        old = options.write.read_text() if options.write.exists() else f"{begin}\n{end}\n"
        options.write.write_text(f"{old.partition(begin)[0]}{begin}\n\n{tight(body)}\n{end}{old.partition(end)[2]}")


def packages():
    def number(name):
        try:
            return version(name)
        except PackageNotFoundError:
            return "absent"
    return ", ".join(f"{name} {number(name)}" for name in ("torch", "safetensors", "runai-model-streamer", "numpy"))
