/* What an artifact adds up to: parameters, bytes of each type, metadata. For people in at most CATALOG_SUMMARY_LINES lines. */
#ifndef CLI_CATALOG_SUMMARY_H
#define CLI_CATALOG_SUMMARY_H

#include <stdio.h>

#include "catalog.h"

enum { CATALOG_SUMMARY_LINES = 12 };

void catalog_summary_print(const struct catalog *catalog, FILE *out);
/* {"artifact", "identity", "layout", "n_files", "n_tensors", "parameters", "total_bytes", "dtypes": [{"dtype", "n_tensors",
 * "parameters", "bytes"}], "metadata"}. The caller frees. */
char *catalog_summary_json(const struct catalog *catalog);

#endif
