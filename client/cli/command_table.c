#include "command_table.h"

const struct command_row command_table[COMMAND_COUNT] = {
    [COMMAND_INSPECT] = {"inspect", "ARTIFACT", "List the tensors of an artifact: types, shapes, sizes, files, identity", "",
                         OPTIONS_VARIANT | OPTIONS_INSPECT | OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_LOAD] =
        {"load", "ARTIFACT", "Load a view of an artifact into memory",
         "A tensor that --tensor and --slice both name is sliced. With --tp-size, tensors that have no --slice\n"
         "are split for that rank: by --tp-rule, or the usual Hugging Face names as vLLM splits them.\n",
         OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_STRATEGY | OPTIONS_SHARDS | OPTIONS_LOAD | OPTIONS_STANDALONE, true},
    [COMMAND_EXPLAIN] = {"explain", "ARTIFACT", "Show how a view would be loaded: every candidate, its numbers, its reason",
                         "", OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_STRATEGY | OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_STATUS] = {"status", "", "Show the daemon's loads, replicas, leases, budgets and calibration", "",
                        OPTIONS_STATUS, false},
    [COMMAND_PREWARM] =
        {"prewarm", "ARTIFACT...", "Make the daemon hold views in memory, for whoever asks for them next",
         "All artifacts are tried, one after the other, with the same options. The daemon drops what nobody has used for\n"
         "memory.replica_idle_ttl, or what other loads need the memory of, unless it is pinned.\n",
         OPTIONS_PREWARM | OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_STRATEGY | OPTIONS_SHARDS, true, true},
    [COMMAND_UNPIN] = {"unpin", "ARTIFACT | --all", "Let the daemon drop again what 'prewarm --pin' has pinned",
                       "Of your own; root and the daemon's own user unpin everybody's.\n", OPTIONS_RELEASE, true},
    [COMMAND_RELEASE] = {"release", "ARTIFACT | --all", "Make the daemon drop the replicas that nobody holds", "",
                         OPTIONS_RELEASE, true},
    [COMMAND_VERIFY] =
        {"verify", "ARTIFACT", "Check every rule of the format on every file, and every byte that has a checksum",
         "Headers are read again although they are cached. Bytes are read when the store gives checksums or a\n"
         "manifest lies beside the artifact, and compared; so are the copies of a tensor that is stored more than once.\n",
         OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_FETCH] = {"fetch", "ARTIFACT [DIR]", "Copy an artifact's files: the small ones, those of the tensors, or all",
                       "Without DIR it is the last part of the reference, here. A file appears when every byte of it has\n"
                       "come and is what the store has a checksum of.\n",
                       OPTIONS_FETCH | OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_PLAN] =
        {"plan", "ARTIFACT --compat", "Show the extents that the original loader would read, and who reads them",
         "Tensors in storage order are packed into extents of up to --chunk-bytes; none is split. The result is the\n"
         "same on every host. How this loader would read an artifact is what 'explain' shows.\n",
         OPTIONS_COMPAT | OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_MANIFEST] =
        {"manifest", "ARTIFACT", "Sum every byte of an artifact into a manifest for later loads to be checked by",
         "Put it beside the artifact: loads find model.manifest.json, or NAME.manifest.json for NAME.safetensors.\n",
         OPTIONS_MANIFEST | OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_EXPORT] =
        {"export", "ARTIFACT --out DIR", "Write an artifact anew, in any layout, into a folder or a store",
         "Runs in this process, with your rights. DIR appears, complete, by one rename; nothing of it is seen before.\n"
         "gs://BUCKET/PATH and s3://BUCKET/PATH: written to this disk first, then uploaded as 'put' does.\n"
         "Formats: hf (whole tensors, in the official layout), topology (a file per rank and topology.json), dcp (a\n"
         "shard per rank, as PyTorch's distributed checkpoint writes them). What is split between ranks, and where, say\n"
         "--tp-rule or the usual Hugging Face names.\n",
         OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_SHARDS | OPTIONS_EXPORT | OPTIONS_ANY_FORMAT | OPTIONS_RANKS, true},
    [COMMAND_FUSE] = {"fuse", "--input-dir DIR -o OUT", "Write an artifact of any layout as one file",
                      "The same as 'export --format hf' without a limit of the file's size.\n",
                      OPTIONS_SHARDS | OPTIONS_EXPORT | OPTIONS_OLDER_TOOL, true},
    [COMMAND_RESHARD] = {"reshard", "--input-dir DIR -o OUT -t N", "Write an artifact of any layout as parts for N ranks",
                         "The same as 'export --format topology' with the rules of Safetensors Distributed: columns of\n"
                         "projections into a layer, rows of those out of it, norms and biases whole, all else by rows.\n",
                         OPTIONS_SHARDS | OPTIONS_EXPORT | OPTIONS_OLDER_TOOL | OPTIONS_RANKS | OPTIONS_RESHARD, true},
    [COMMAND_VARIANTS] = {"variants", "", "List the recipes that come with the program, for --variant",
                          "Recipes of your own are YAML files: see docs/variants.md.\n", 0, false},
    [COMMAND_ACTIVATIONS] = {"activations", "COMMAND [STORE]",
                             "Look at stores of activations, and share out the work for them", "", 0, false},
    [COMMAND_FOLDER] =
        {"folder", "ARTIFACT DIR", "Make a folder on tmpfs for programs that take nothing else",
         "DIR appears, complete, with the artifact's files in memory, charged to the daemon's host budget, and\n"
         "'tensorcast release DIR' takes it away. Folders of one artifact share the memory.\n",
         OPTIONS_VARIANT | OPTIONS_SHARDS, true},
    [COMMAND_COMPLETION] =
        {"completion", "bash|zsh|fish", "Print what lets a shell complete this command's lines",
         "bash: source <(tensorcast completion bash). zsh: put it as _tensorcast into a folder of $fpath.\n"
         "fish: tensorcast completion fish > ~/.config/fish/completions/tensorcast.fish\n",
         0, false},
    [COMMAND_PUT] =
        {"put", "PATH REFERENCE", "Upload a file, or a folder with all that is in it, to gs:// or s3://",
         "Runs in this process, with your credentials. An object is seen when it is complete, and it counts when the\n"
         "store's own checksum of all of it is that of the file. What is there already is left alone, without --force.\n",
         OPTIONS_PUT, true},
};
