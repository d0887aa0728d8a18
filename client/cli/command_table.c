#include "command_table.h"

#include <stddef.h>

const struct command_row command_table[COMMAND_COUNT] = {
    [COMMAND_INSPECT] = {"inspect", "ls", "ARTIFACT", "List the tensors of an artifact: types, shapes, sizes, files", "",
                         OPTIONS_VARIANT | OPTIONS_INSPECT | OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_LOAD] =
        {"load", NULL, "ARTIFACT", "Load a view of an artifact into memory",
         "A tensor that --tensor and --slice both name is sliced. With --tp-size, tensors that have no --slice are split "
         "for that rank: by --tp-rule, or the usual Hugging Face names as vLLM splits them.\n",
         OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_STRATEGY | OPTIONS_SHARDS | OPTIONS_LOAD | OPTIONS_STANDALONE, true},
    [COMMAND_EXPLAIN] = {"explain", NULL, "ARTIFACT", "Show how a view would be loaded: candidates, numbers, reasons", "",
                         OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_STRATEGY | OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_STATUS] = {"status", "ps", "", "Show the daemon's loads, replicas, leases, budgets and costs", "",
                        OPTIONS_STATUS, false},
    [COMMAND_PREWARM] =
        {"prewarm", NULL, "ARTIFACT...", "Make the daemon hold views in memory for later clients",
         "All artifacts are tried, one after the other, with the same options. The daemon drops a view that no client has "
         "used for memory.replica_idle_ttl, or when other loads need its memory, except when it is pinned.\n",
         OPTIONS_PREWARM | OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_STRATEGY | OPTIONS_SHARDS, true, true},
    [COMMAND_UNPIN] = {"unpin", NULL, "ARTIFACT | --all", "Let the daemon drop what 'prewarm --pin' has pinned",
                       "You unpin your own; root and the daemon's own user unpin those of all users.\n", OPTIONS_RELEASE,
                       true},
    [COMMAND_RELEASE] = {"release", NULL, "ARTIFACT | --all", "Make the daemon drop replicas that no client holds",
                         "DIR of a folder that 'tensorcast folder' made: the folder goes.\n", OPTIONS_RELEASE, true},
    [COMMAND_VERIFY] =
        {"verify", NULL, "ARTIFACT", "Check the format of every file, and every checksum there is",
         "Headers are read again although they are cached. Bytes are read and compared when the store gives checksums or a "
         "manifest lies beside the artifact; so are the copies of a tensor that is stored more than once.\n",
         OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_FETCH] = {"fetch", "pull", "ARTIFACT [DIR]", "Copy an artifact's files: the small ones, the tensors, or all",
                       "Without DIR it is the last part of the reference, here. A file appears when every byte of it has "
                       "come and matches the store's checksum.\n",
                       OPTIONS_FETCH | OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_PLAN] =
        {"plan", NULL, "ARTIFACT --compat", "Show which extents the original loader would read",
         "Tensors in storage order are packed into extents of up to --chunk-bytes; none is split. The result is the same on "
         "every host. 'explain' shows how this loader would read an artifact.\n",
         OPTIONS_COMPAT | OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_MANIFEST] =
        {"manifest", NULL, "ARTIFACT", "Write checksums of every byte, to check later loads by",
         "Put it beside the artifact: loads find model.manifest.json, or NAME.manifest.json for NAME.safetensors.\n",
         OPTIONS_MANIFEST | OPTIONS_SHARDS | OPTIONS_STANDALONE, true},
    [COMMAND_EXPORT] =
        {"export", "convert", "ARTIFACT --out DIR", "Write an artifact anew, in any layout, to a folder or a store",
         "Runs in this process, with your rights. DIR appears, complete, by one rename; nothing of it is seen before.\n"
         "gs://BUCKET/PATH and s3://BUCKET/PATH: written to this disk first, then uploaded as 'put' does.\n"
         "Formats: hf (whole tensors, in the official layout), topology (a file per rank and topology.json), dcp (a shard "
         "per rank, as PyTorch's distributed checkpoint writes them). --tp-rule or the usual Hugging Face names say what is "
         "split between ranks, and where.\n",
         OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_SHARDS | OPTIONS_EXPORT | OPTIONS_ANY_FORMAT | OPTIONS_RANKS, true},
    [COMMAND_FUSE] = {"fuse", NULL, "--input-dir DIR -o OUT", "Write an artifact of any layout as one file",
                      "The same as 'export --format hf' without a limit of the file's size.\n",
                      OPTIONS_SHARDS | OPTIONS_EXPORT | OPTIONS_OLDER_TOOL, true},
    [COMMAND_RESHARD] = {"reshard", NULL, "--input-dir DIR -o OUT -t N",
                         "Write an artifact of any layout as parts for N ranks",
                         "The same as 'export --format topology' with the rules of Safetensors Distributed: columns of "
                         "projections into a layer, rows of those out of it, norms and biases whole, all else by rows.\n",
                         OPTIONS_SHARDS | OPTIONS_EXPORT | OPTIONS_OLDER_TOOL | OPTIONS_RANKS | OPTIONS_RESHARD, true},
    [COMMAND_VARIANTS] = {"variants", NULL, "", "List the recipes that come with the program, for --variant",
                          "Recipes of your own are YAML files: see docs/variants.md.\n", 0, false},
    [COMMAND_ACTIVATIONS] = {"activations", NULL, "COMMAND [STORE]",
                             "Look at stores of activations, and share out work for them", "", 0, false},
    [COMMAND_FOLDER] =
        {"folder", NULL, "ARTIFACT DIR", "Make a folder on tmpfs for programs that take nothing else",
         "DIR appears, complete, with the artifact's files in memory, charged to the daemon's host budget, and 'tensorcast "
         "release DIR' takes it away. Folders of one artifact share the memory.\n",
         OPTIONS_VARIANT | OPTIONS_SHARDS, true},
    [COMMAND_COMPLETION] = {"completion", NULL, "bash|zsh|fish", "Print the completion of this command for a shell",
                            "bash: source <(tensorcast completion bash)\n"
                            "zsh: put it as _tensorcast into a folder of $fpath\n"
                            "fish: tensorcast completion fish > ~/.config/fish/completions/tensorcast.fish\n",
                            0, false},
    [COMMAND_PUT] =
        {"put", NULL, "PATH REFERENCE", "Upload a file or a folder to gs:// or s3://",
         "Runs in this process, with your credentials. An object is seen when it is complete, and it counts when the "
         "store's "
         "own checksum of all of it is that of the file. An object that is there already is left alone, except with "
         "--force.\n",
         OPTIONS_PUT, true},
};
