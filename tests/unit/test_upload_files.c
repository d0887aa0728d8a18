/* Which files are found; that they are sent is stores/test_put.py's. */
#include "client/cli/upload_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

#include "tests/support/shell.h"

static void files_below_64_folders_are_found_and_those_below_one_more_are_refused(void **state)
{
    char root[] = "/tmp/tc-upload-files-XXXXXX";
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_below_64_folders_are_found_and_those_below_one_more_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
