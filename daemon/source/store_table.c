/* Every store there is: the only file of this folder that knows them. A new one is its folder below and its row here. The
 * configuration has their sections in this order. */
#include "source/disk/source_disk.h"
#include "source/gcs/source_gcs.h"
#include "source/hf/source_hf.h"
#include "source/s3/source_s3.h"
#include "source/store.h"
#include "source/web/source_https.h"

/* Tests have one of their own behind all others. */
extern const struct store store_of_tests __attribute__((weak));

const struct store *const store_table[] = {
    &source_disk_store, &source_https_store, &source_gcs_store, &source_s3_store, &source_hf_store, &store_of_tests, NULL,
};
