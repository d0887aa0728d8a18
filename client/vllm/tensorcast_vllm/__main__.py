"""tensorcast-vllm REFERENCE: fetches a model's configuration and tokenizer, prints the folder to give to vLLM.

    vllm serve "$(tensorcast-vllm gs://bucket/llama)" --load-format tensorcast

does what `vllm serve gs://bucket/llama` does by itself; on hosts that only run workers of another host's engine this has to
be done before.

tensorcast-vllm run -- PROGRAM ...: starts an engine, and has the daemon read what such an engine asked for the last time while
Python imports vLLM.

    tensorcast-vllm run -- vllm serve /models/llama --load-format tensorcast --tensor-parallel-size 2

With --daemon the engine loads through a daemon of this user's own, which is started if it does not run.
"""
import argparse
import os
import sys

from .options import LoaderOptions


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["run"]:
        run(arguments[1:])
    else:
        folder(arguments)


def run(words):
    """Does not return: the process becomes the program."""
    parser = argparse.ArgumentParser(prog="tensorcast-vllm run", description="Starts PROGRAM, such as vllm serve MODEL --load-format "
                                     "tensorcast, and has the tensorcast daemon read what its workers asked for the last time they "
                                     "were started like that.")
    parser.add_argument("--daemon", action="store_true", help="load through your own daemon (tensorcastd --user); it is started if it does not "
                        "run, may read the model's folder, and stays for the next engine")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...")
    known = parser.parse_args(words)
    program = known.program
    program = program[1:] if program[:1] == ["--"] else program
    if not program:
        parser.error("a program is missing")
    from . import prewarm
    asked = prewarm.of_command(program)
    if known.daemon:
        if not asked:
            parser.error("--daemon needs an engine that is given a model and --load-format tensorcast")
        os.environ["TENSORCAST_SOCKET"] = _own_daemon(asked[0])
    if asked:
        prewarm.start(asked)
        os.environ[prewarm.DONE] = "1"
    sys.stdout.flush()
    try:
        os.execvp(program[0], program)
    except OSError as error:
        print(f"tensorcast-vllm: {program[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)  # as env(1) and shells do


def _own_daemon(model):
    """Its socket."""
    import tensorcast_client as tc
    from tensorcast_client.reference import parse

    from .references import is_reference
    try:
        reference = parse(model) if is_reference(model) or os.path.isdir(model) else f"hf://{model}"
        return tc.connect().of_own_daemon(reference).socket_path
    except (tc.TensorcastError, ValueError, OSError) as error:
        sys.exit(f"tensorcast-vllm: {error}")


def folder(arguments):
    import tensorcast_client as tc

    from .model_folder import prepare
    parser = argparse.ArgumentParser(prog="tensorcast-vllm", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage="tensorcast-vllm [options] REFERENCE\n       tensorcast-vllm run [--daemon] -- PROGRAM ...",
                                     description="tensorcast-vllm REFERENCE fetches the configuration and tokenizer of a model through the\n"
                                     "tensorcast daemon and prints the folder to give to vLLM.\n\n"
                                     "tensorcast-vllm run -- PROGRAM ... starts an engine, for example\n"
                                     "  tensorcast-vllm run -- vllm serve MODEL --load-format tensorcast\n"
                                     "and lets the daemon read the weights while Python imports vLLM.")
    parser.add_argument("reference", help="where the model is: gs://..., s3://..., hf://..., https://... or a path")
    parser.add_argument("--socket", help="the daemon; else $TENSORCAST_SOCKET, else the system's daemon, else your own (tensorcastd --user)")
    parser.add_argument("--cache", help="where to keep the folders; else ~/.cache/tensorcast/vllm")
    parser.add_argument("--variant", metavar="RECIPE", help="as model_loader_extra_config will say it: a path or a built-in recipe")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a value of the recipe; any number of times")
    options = parser.parse_args(arguments)
    if any("=" not in pair for pair in options.set):
        parser.error("--set takes KEY=VALUE")
    loading = LoaderOptions(variant=options.variant, variant_set=dict(pair.split("=", 1) for pair in options.set))
    try:
        print(prepare(options.reference, options.socket, options.cache, loading))
    except (tc.TensorcastError, ValueError, OSError) as error:
        sys.exit(f"tensorcast-vllm: {error}")


if __name__ == "__main__":
    main()
