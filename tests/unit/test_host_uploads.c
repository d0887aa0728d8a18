/* What is queued of a host costs metadata; that it arrives is e2e/test_activation_uploads.py's. */
#include "tests/support/unit.h"

#include <unistd.h>

#include "activations/host_uploads.h"
#include "base/metadata.h"
#include "config/config.h"
#include "source/stores.h"
#include "tests/support/activation_cases.h"
#include "tests/support/shell.h"

TEST(a_host_with_more_segments_than_there_is_metadata_for_queues_none)
{
    enum { N_SAMPLES = 30 };
    char root[] = "/tmp/test_host_uploads_XXXXXX", path[64];
    struct quota *quota = quota_create();
    struct stores *stores;
    struct upload_queue *queue;
    struct upload_counts counts;
    struct error error;
    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof path, "%s/acts", root);
    struct host_folder *folder = case_folder_open(root, 4096);
    for (uint32_t id = 0; id < N_SAMPLES; id++)
        case_folder_append(folder, id, 20);
    case_folder_seal(folder, true);
    uint64_t n_segments = host_folder_resume(folder).n_segments;
    assert_in_range(n_segments, 10, N_SAMPLES);
    assert_int_equal(stores_create(config_defaults(), NULL, &stores, &error), 0);
    const struct upload_options options = {.state_dir = root, .stores = stores, .quota = quota};
    queue = upload_queue_create(&options);
    assert_int_equal(upload_queue_open(queue, &error), 0);
    struct host_uploads *uploads = host_uploads_create(root, queue);
    char reference[] = "gs://open/acts";
    const struct known_host host = {.path = path, .host = 3, .upload = {reference, false}};

    struct metadata_account before = metadata_enter((struct metadata_account){quota, geteuid()});
    quota_set_limits(quota, QUOTA_METADATA, 1000, 1000);
    assert_int_equal(host_uploads_begin(uploads, &host, folder, false, &error), -1);
    assert_string_equal(error.reason, "METADATA_EXCEEDED");
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    host_uploads_counts(uploads, path, 3, &counts);
    assert_int_equal(counts.pending, 0);
    quota_set_limits(quota, QUOTA_METADATA, 1 << 20, 1 << 20);
    assert_int_equal(host_uploads_begin(uploads, &host, folder, false, &error), 0);
    host_uploads_counts(uploads, path, 3, &counts);
    assert_int_equal(counts.pending, n_segments);
    metadata_enter(before);

    host_folder_close(folder);
    upload_queue_destroy(queue);
    host_uploads_destroy(uploads);
    stores_destroy(stores);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    quota_destroy(quota);
    shell("rm -rf %s", root);
}
