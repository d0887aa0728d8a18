/* Every store there is: the only file that knows them all. A new one is its folder in daemon/source and its row here. The
 * configuration has their sections in this order. */
#include "source/disk/source_disk.h"
#include "source/gcs/source_gcs.h"
#include "source/hf/source_hf.h"
#include "source/s3/source_s3.h"
#include "source/source_memory.h"
#include "source/store.h"
#include "source/web/source_https.h"

const struct store *const store_table[] = {
    &source_disk_store,
    &source_memory_store,
    &source_https_store,
    &source_gcs_store,
    &source_s3_store,
    &source_hf_store,
    NULL,
};
