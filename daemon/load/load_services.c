#include "load/load_services.h"

struct source_options load_services_source_options(const struct load_services *services, const struct config *config,
                                                   uid_t uid, const struct cancel *cancel)
{
    return (struct source_options){.trusted_roots = config->disk.trusted_roots,
                                   .n_trusted_roots = config->disk.n_trusted_roots,
                                   .allow_relative = services->allow_relative,
                                   .stores = services->stores,
                                   .cancel = cancel,
                                   .uid = uid};
}
