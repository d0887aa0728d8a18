#include "activations_commands.h"

int activations_import(struct activations_run *run, struct error *error)
{
    (void)run;
    return fail(error, ERROR_UNIMPLEMENTED, "IMPORT_UNAVAILABLE", "this build cannot import pickle shards");
}

int activations_export(struct activations_run *run, struct error *error)
{
    (void)run;
    return fail(error, ERROR_UNIMPLEMENTED, "EXPORT_UNAVAILABLE", "this build cannot write pickle shards");
}
