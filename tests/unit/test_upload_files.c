/* Which files are found; that they are sent is stores/test_put.py's. */
#include "tests/support/unit.h"

#include "client/cli/upload_files.h"
#include "tests/support/shell.h"

TEST(files_below_64_folders_are_found_and_those_below_one_more_are_refused)
{
    char root[] = "/tmp/tc-upload-files-XXXXXX";
    assert_non_null(mkdtemp(root));
    for (int depth = UPLOAD_FILES_MAX_DEPTH; depth <= UPLOAD_FILES_MAX_DEPTH + 1; depth++) {
        struct upload_files upload = {0};
        struct error error;
        shell("cd %s && rm -rf a && for i in $(seq %d); do mkdir a && cd a; done && touch f", root, depth);
        int status = upload_files_find(&upload, root, "s3://bucket/x", &error);
        assert_int_equal(status, depth > UPLOAD_FILES_MAX_DEPTH ? -1 : 0);
        assert_int_equal(upload.n_files, depth > UPLOAD_FILES_MAX_DEPTH ? 0 : 1);
        if (status < 0)
            assert_string_equal(error.reason, "TOO_DEEP");
        upload_files_fini(&upload);
    }
    shell("rm -rf %s", root);
}
