/* Every store there is: the only file that knows them all. A new one is its folder in daemon/source and its rows here. */
#include "source/disk/source_disk.h"
#include "source/gcs/gcs_client.h"
#include "source/gcs/source_gcs.h"
#include "source/hf/source_hf.h"
#include "source/s3/s3_client.h"
#include "source/s3/source_s3.h"
#include "source/source_memory.h"
#include "source/stores.h"
#include "source/web/source_https.h"

const struct source_ops *const source_backends[] = {
    &source_disk_ops, &source_memory_ops, &source_https_ops, &source_http_ops,
    &source_hf_ops,   &source_gcs_ops,    &source_s3_ops,    NULL};

const struct stores_row stores_rows[] = {
    {"https", source_https_describe},
    {"hf", source_hf_describe},
    {"gs", gcs_client_describe},
    {"s3", s3_client_describe},
    {0},
};
