/* GPUs and NCCL by the real plugin on the fakes of tests/fake, whose counts of what is alive have to be at the end what they were. Include
 * it in the one file of a test that is linked with the fakes. One stage at a time. */
#ifndef TESTS_SUPPORT_NCCL_STAGE_H
#define TESTS_SUPPORT_NCCL_STAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "device/plugin.h"
#include "fake_cuda.h"
#include "fake_nccl.h"
#include "observe/log.h"
#include "device/transport.h"

#include <cmocka.h>

enum { NCCL_STAGE_GPUS = 4, NEVER_ENDS = 0, SYSTEM_ERROR = 2, REMOTE_ERROR = 6, LAUNCH_FAILURE = 719 };

/* What never ends is waited for until soon. A poll counts for 100 ms at most, so making communicators, which takes a few, is
 * not cut short by a busy machine. Where something else than the time is to end a wait it is late. */
enum { SOON_MS = 2000, LATE_MS = 60000 };

static struct nccl_stage {
    char plugin_folder[4096];
    struct device_plugins plugins;
    struct fake_cuda_live before;
} nccl_stage;

/* False: `program` lies in no build folder. */
static inline bool nccl_stage_init(const char *program)
{
    struct error error;
    char *slash = realpath(program, nccl_stage.plugin_folder) ? strstr(nccl_stage.plugin_folder, "/tests/unit/") : NULL;
    if (!slash || log_open("/dev/null", LOG_ERROR, LOG_LOGFMT, &error))
        return false;
    strcpy(slash, "/plugins");
    setenv("TENSORCAST_TEST_FAKE_CUDA", "1", 1);
    setenv("TENSORCAST_TEST_FAKE_CUDA_DEVICES", "4", 1);
    setenv("TENSORCAST_TEST_FAKE_NCCL", "1", 1);
    return true;
}

static inline void nccl_stage_open(void)
{
    struct device_plugins *plugins = &nccl_stage.plugins;
    fake_cuda_reset();
    fake_nccl_reset();
    nccl_stage.before = fake_cuda_live();
    device_plugins_load(plugins, nccl_stage.plugin_folder);
    assert_int_equal(plugins->n_devices, NCCL_STAGE_GPUS);
    assert_non_null(plugins->transport);
    assert_int_equal(plugins->transport_layout, TRANSPORT_LAYOUT);
}

/* Nothing may be left: no communicator, no stream, no byte of GPU memory. */
static inline int nccl_stage_close(void **state)
{
    (void)state;
    device_plugins_destroy(&nccl_stage.plugins);
    struct fake_cuda_live live = fake_cuda_live();
    assert_int_equal(fake_nccl_counts().live, 0);
    assert_memory_equal(&live, &nccl_stage.before, sizeof live);
    return 0;
}

/* What is on a broken GPU is given up, not freed. */
static inline int nccl_stage_close_broken(void **state)
{
    (void)state;
    device_plugins_destroy(&nccl_stage.plugins);
    assert_int_equal(fake_nccl_counts().live, 0);
    return 0;
}

#endif
