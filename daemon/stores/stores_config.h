/* The section `sources` of the configuration as settings of the object stores. Pure. */
#ifndef STORES_CONFIG_H
#define STORES_CONFIG_H

#include "config/config.h"
#include "source/stores.h"

struct stores_options stores_config(const struct config *config); /* borrows the texts */

#endif
