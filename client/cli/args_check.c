/* Views, meshes, groups and exports: what has to be given together, and what cannot be. */
#include "args_check.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "command_table.h"
#include "export/export_layout.h"
#include "out_file.h"
#include "read_file.h"

#define wrong(error, ...) fail(error, ERROR_INVALID_ARGUMENT, "USAGE", __VA_ARGS__)

static int check_mesh(struct args *args, struct error *error)
{
    struct view_args *view = &args->view;
    struct tc_sharding_options *mesh = &view->mesh;
    view->has_sharding = mesh->mesh || mesh->mesh_rank != ARGS_UNSET || mesh->best_effort != ARGS_UNSET || mesh->n_specs ||
                         mesh->n_placements;
    if (!view->has_sharding)
        return 0;
    if (mesh->mesh_rank == ARGS_UNSET)
        return wrong(error, "a mesh needs --mesh-rank, which of its devices this is");
    if (mesh->best_effort == 0)
        return wrong(error, "--best-effort is at least 1");
    if (!mesh->mesh && mesh->best_effort == ARGS_UNSET)
        return wrong(error, "--%s needs --mesh", mesh->n_specs ? "spec" : mesh->n_placements ? "placements" : "mesh-rank");
    if (mesh->n_specs + mesh->n_placements == 0 && mesh->best_effort == ARGS_UNSET)
        return wrong(error, "--mesh needs --spec, --placements or --best-effort, which say how it splits tensors");
    mesh->best_effort = mesh->best_effort == ARGS_UNSET ? 0 : mesh->best_effort;
    mesh->specs = view->specs;
    mesh->placements = view->placements;
    if (view->has_tp)
        return wrong(error, "--tp-* and --mesh are two ways to say the same: give one");
    return sharding_build(mesh, &args->arena, &view->sharding, error);
}

static int check_view(struct args *args, struct error *error)
{
    struct view_args *view = &args->view;
    char shown[TEXT_NAME_CHARS];
    for (size_t i = 0; i < view->n_selectors; i++)
        for (size_t k = 0; !view->selectors[i].glob && k < i; k++)
            if (!view->selectors[k].glob && strcmp(view->selectors[i].slice.name, view->selectors[k].slice.name) == 0)
                return wrong(error, "tensor '%s' has two --slice options",
                             text_escape(view->selectors[i].slice.name, strlen(view->selectors[i].slice.name), shown));
    struct tp_split *tp = &view->tp;
    bool is_export = command_table[args->command].options & OPTIONS_EXPORT; /* there, rules alone say what it writes */
    view->has_tp = tp->size != ARGS_UNSET || tp->rank != ARGS_UNSET || (tp->n_rules && !is_export);
    if (view->has_tp && (tp->size == ARGS_UNSET || tp->rank == ARGS_UNSET))
        return wrong(error, "tensor parallelism needs both --tp-size and --tp-rank");
    if (view->has_tp && tp->size == 0)
        return wrong(error, "--tp-size is at least 1");
    if (view->has_tp && tp->rank >= tp->size)
        return wrong(error, "--tp-rank %" PRId64 " is not in a group of --tp-size %" PRId64 ": ranks go from 0 to %" PRId64,
                     tp->rank, tp->size, tp->size - 1);
    if (check_mesh(args, error) < 0)
        return -1;
    if (view->file && (view->n_selectors || view->has_tp || view->has_sharding))
        return wrong(error, "--view says everything: --tensor, --slice, --tp-* and --mesh cannot be added to it");
    return 0;
}

static int check_ranks(const struct args *args, struct error *error)
{
    const struct export_args *export = &args->export;
    bool is_reshard = args->command == COMMAND_RESHARD;
    const char *option = is_reshard ? "target-world-size" : "world-size";
    int64_t rank = args->load.rank, world_size = args->load.world_size;
    if (export->format == EXPORT_HF && args->view.tp.n_rules && !args->view.has_tp)
        return wrong(
            error, "--tp-rule says how ranks split tensors: it needs --format topology or dcp, or --tp-size and --tp-rank");
    if (export->format == EXPORT_HF)
        return world_size != ARGS_UNSET || rank != ARGS_UNSET || export->uneven != UNEVEN_ERROR
                   ? wrong(error, "--world-size, --rank and --uneven need --format topology or dcp")
                   : 0;
    if (export->mapping || export->max_file_bytes)
        return wrong(error, "--mapping and --max-file-size are of the hf format");
    if (world_size == ARGS_UNSET)
        return wrong(error, "'%s' needs --%s N", command_table[args->command].name, option);
    if (world_size == 0 || world_size > EXPORT_MAX_WORLD_SIZE)
        return wrong(error, "--%s is from 1 to %d", option, EXPORT_MAX_WORLD_SIZE);
    if (rank != ARGS_UNSET && rank >= world_size)
        return wrong(error, "--rank %" PRId64 " is not among %" PRId64 " ranks: they go from 0 to %" PRId64, rank,
                     world_size, world_size - 1);
    return 0;
}

/* They work in this process, and what fuse and reshard are short for is filled in. */
static int check_export(struct args *args, struct error *error)
{
    struct export_args *export = &args->export;
    args->standalone = true;
    if (args->command == COMMAND_RESHARD)
        export->format = EXPORT_TOPOLOGY;
    if (!args->output.path || out_file_is_stdout(args->output.path))
        return wrong(error, "'%s' needs --out DIR, a folder to write", command_table[args->command].name);
    if (export->mapping && export->max_file_bytes)
        return wrong(error, "--mapping says which file gets which tensor: --max-file-size cannot be added to it");
    return check_ranks(args, error);
}

/* Standard input is one text. */
static int check_standard_input(const struct args *args, struct error *error)
{
    const char *const files[] = {args->view.file, args->variant.recipe, args->export.mapping};
    size_t n = 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        n += files[i] && input_is_standard(files[i]);
    if (n > 1)
        return wrong(error, "standard input can be one of --view, --variant and --mapping");
    if (args->command == COMMAND_PUT && args->artifact && input_is_standard(args->artifact))
        return wrong(error,
                     "'put' takes a file that it can read again, which standard input is not; a file of that name is ./-");
    return 0;
}

static int check_variant(const struct args *args, struct error *error)
{
    const struct variant_args *variant = &args->variant;
    return variant->n_settings && !variant->recipe ? wrong(error, "--set is for the recipe of a --variant") : 0;
}

static int check_group(struct args *args, struct error *error)
{
    if (command_table[args->command].options & OPTIONS_EXPORT)
        return check_export(args, error);
    bool any = args->load.group || args->load.rank != ARGS_UNSET || args->load.world_size != ARGS_UNSET;
    if (args->command == COMMAND_PLAN) /* it has no group, just hosts */
        return args->load.world_size == 0 ? wrong(error, "--world-size is at least 1") : 0;
    if (any && !(args->load.group && args->load.rank != ARGS_UNSET && args->load.world_size != ARGS_UNSET))
        return wrong(error, "a load group needs --group, --rank and --world-size together");
    if (any && args->load.world_size == 0)
        return wrong(error, "--world-size is at least 1");
    if (any && args->load.rank >= args->load.world_size)
        return wrong(error, "--rank %" PRId64 " is not in a group of --world-size %" PRId64 ": ranks go from 0 to %" PRId64,
                     args->load.rank, args->load.world_size, args->load.world_size - 1);
    return 0;
}

static int check_inspect(const struct args *args, struct error *error)
{
    const struct output_args *output = &args->output;
    if (output->names && (output->summary || output->index != INDEX_NONE || args->json))
        return wrong(error, "--names prints names alone: --summary, --index and --json cannot be added to it");
    bool is_part = args->command == COMMAND_INSPECT && (output->summary || args->view.n_selectors);
    return is_part && output->index != INDEX_NONE
               ? wrong(error, "--index prints a document of its own: --summary and --tensor cannot be added to it")
               : 0;
}

static int check_fetch(struct args *args, struct error *error)
{
    struct fetch_args *fetch = &args->fetch;
    if (args->command == COMMAND_FOLDER && (!fetch->folder || !*fetch->folder))
        return wrong(error, "'folder' needs DIR, a folder to make on tmpfs");
    if (fetch->folder && (strcmp(fetch->folder, "-") == 0 || !*fetch->folder))
        return wrong(error, "'%s' takes a folder, which standard output is not; a folder of that name is ./-",
                     command_table[args->command].name);
    if (args->command == COMMAND_FOLDER)
        fetch->kind = FETCH_ALL;
    if (args->command != COMMAND_FETCH)
        return 0;
    if (fetch->sidecars + fetch->tensors + args->all > 1)
        return wrong(error, "--sidecars, --tensors and --all exclude each other");
    fetch->kind = fetch->tensors ? FETCH_TENSORS : args->all ? FETCH_ALL : FETCH_SIDECARS;
    return 0;
}

int args_check(struct args *args, struct error *error)
{
    args->standalone |= args->command == COMMAND_PUT;
    return check_standard_input(args, error) < 0 || check_inspect(args, error) < 0 || check_view(args, error) < 0 ||
                   check_variant(args, error) < 0 || check_group(args, error) < 0 || check_fetch(args, error) < 0
               ? -1
               : 0;
}
