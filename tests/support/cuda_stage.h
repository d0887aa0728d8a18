/* A stage for tests of the CUDA backend: a load scene, and the real plugin on the fake CUDA of tests/fake/cuda with its two
 * devices. Only programs that are linked with the fake may use it. One thread calls everything. */
#ifndef SUPPORT_CUDA_STAGE_H
#define SUPPORT_CUDA_STAGE_H

#include "device/plugin.h"
#include "tests/fake/cuda/fake_cuda.h"
#include "tests/support/load_scene.h"

#define GENERIC EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE
#define LOCAL EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

enum { OUT_OF_MEMORY = 2, LAUNCH_FAILURE = 719 };

extern char cuda_stage_plugins[4096]; /* the folder */
/* Finds the plugin beside the test program and switches the fake on. -1: it has to be run where it was built. */
int cuda_stage_prepare(const char *program);

struct cuda_stage {
    struct device_plugins plugins;
    struct load_scene scene;
    struct device *gpu; /* the first one */
    struct fake_cuda_live before;
};

void cuda_stage_init(struct cuda_stage *stage, uint64_t staging_bytes, uint64_t n_threads);
/* Whatever a test did, nothing of it may be left in the runtime; the memory of a broken device is given up on purpose. */
void cuda_stage_fini(struct cuda_stage *stage, bool is_broken);

void cuda_stage_add_tensors(struct cuda_stage *stage);
struct load *cuda_stage_load(struct cuda_stage *stage, int executor,
                             struct device *device); /* of those: slices, and a whole */
/* For tests that load hundreds of times: two blocks, an inner slice, and gaps to zero. */
void cuda_stage_add_few_tensors(struct cuda_stage *stage);
struct load *cuda_stage_small_load(struct cuda_stage *stage, struct device *device);

bool is_load_right(struct load *load);
/* What a client sees that was given the descriptor, which is closed. */
bool is_right_behind(const struct load *load, int fd);
void assert_published(struct load *load);
void assert_host_is_well(struct cuda_stage *stage);

/* Lets every call of a load fail in turn: it is reported, the host is well, nothing is left behind, and the device works on
 * unless the error stays. `load_once` loads something and says whether all went well. */
void fail_each_call(bool (*load_once)(struct cuda_stage *stage, struct error *error), int code, bool is_sticky);

#endif
