#include "command.h"
#include "completion.h"

int command_completion(struct backend *backend, struct error *error)
{
    (void)error;
    completion_print(backend->args->shell, stdout);
    return 0;
}
