/* T3: memory of this process, filled by the daemon: `region ARTIFACT cudaMalloc|cuMemCreate`. At an offset inside its
 * allocation it has to hold what a load into host memory holds, with every byte around it as it was; offers that cannot be
 * right are refused and harm no client. The same tensors go to targets at odd offsets. Prints one line; exit 0 when all of it
 * is so. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorcast.h"

#define MIB ((uint64_t)1 << 20)

enum { FILLER = 0xA5, OFFSET = (1 << 20) + 256, GRANULE = 2 << 20 };

static void must(int is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "region: %s\n", what);
    exit(1);
}

static void *symbol(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    must(found != NULL, name);
    return found;
}

static void *make_mapped(size_t bytes)
{
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long) =
        symbol("cuMemCreate");
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long) = symbol("cuMemAddressReserve");
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) = symbol("cuMemMap");
    CUresult (*allow)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) = symbol("cuMemSetAccess");
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    must(create(&handle, bytes, &properties, 0) == CUDA_SUCCESS, "cuMemCreate failed");
    must(reserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS && map(address, bytes, 0, handle, 0) == CUDA_SUCCESS &&
             allow(address, bytes, &access, 1) == CUDA_SUCCESS,
         "mapping failed");
    return (void *)(uintptr_t)address;
}

static char *make_memory(const char *kind, size_t bytes, const char *filler)
{
    void *memory = NULL;
    must(cudaSetDevice(0) == cudaSuccess, "no device");
    if (strcmp(kind, "cuMemCreate") == 0)
        memory = make_mapped(bytes);
    else
        must(cudaMalloc(&memory, bytes) == cudaSuccess, "cudaMalloc failed");
    must(cudaMemcpy(memory, filler, bytes, cudaMemcpyHostToDevice) == cudaSuccess, "filling failed");
    return memory;
}

static void expect_refusal(struct tc_client *client, const char *artifact, void *memory, uint64_t bytes, const char *reason)
{
    const struct tc_options options = {.device = "cuda:0"};
    struct tc_error error;
    must(!tc_load_into(client, artifact, NULL, &options, memory, bytes, &error), "an impossible offer was taken");
    must(strcmp(error.reason, reason) == 0, error.message);
}

/* Every tensor at an odd offset in a region, and a constant behind the last one. */
static void fill_targets(struct tc_client *client, const char *artifact, const struct tc_load *expected, char *memory,
                         size_t all, char *got)
{
    size_t n = tc_load_n_tensors(expected);
    struct tc_error error;
    struct tc_target *targets = calloc(n + 1, sizeof *targets);
    struct tc_region *region = tc_region_wrap("cuda:0", memory, all, &error);
    const uint64_t one = 1;
    char *json;
    must(region && tc_region_memory(region, NULL) == memory, error.message);
    for (size_t i = 0; i < n; i++) {
        struct tc_tensor tensor;
        tc_load_tensor(expected, i, &tensor);
        targets[i] = (struct tc_target){.name = tensor.name,
                                        .dtype = tensor.dtype,
                                        .shape = tensor.shape,
                                        .rank = tensor.rank,
                                        .region = region,
                                        .offset = OFFSET + 1 + tensor.offset};
    }
    targets[n] = (struct tc_target){
        .name = "end", .dtype = "U8", .shape = &one, .rank = 1, .region = region, .offset = all - 1, .value = "\x5a"};
    const struct tc_targets list = {targets, n + 1, &targets[n], 1};
    must(tc_load_targets(client, artifact, NULL, &list, NULL, &json, &error) == 0, error.message);
    must(cudaMemcpy(got, memory, all, cudaMemcpyDeviceToHost) == cudaSuccess, "reading back failed");
    for (size_t i = 0; i < n; i++) {
        struct tc_tensor tensor;
        tc_load_tensor(expected, i, &tensor);
        must(memcmp(got + targets[i].offset, tensor.data, tensor.bytes) == 0, "a target differs");
    }
    must(got[all - 1] == 0x5a && got[all - 2] == (char)FILLER && got[OFFSET] == (char)FILLER,
         "a constant is somewhere else, or bytes around targets were written");
    free(json);
    free(targets);
    tc_region_destroy(region);
}

int main(int argc, char **argv)
{
    const struct tc_options options = {.device = "cuda:0"};
    struct tc_error error;
    uint64_t bytes;
    must(argc == 3, "usage: region ARTIFACT cudaMalloc|cuMemCreate");
    struct tc_client *client = tc_connect(NULL, &error);
    struct tc_load *expected = tc_load_view(client, argv[1], NULL, NULL, &error);
    must(expected != NULL, error.message);
    struct tc_tensor last;
    tc_load_tensor(expected, tc_load_n_tensors(expected) - 1, &last);
    bytes = last.offset + last.bytes;
    size_t all = (bytes + OFFSET + GRANULE) / GRANULE * GRANULE + GRANULE;
    char *filler = malloc(all), *got = malloc(all);
    memset(filler, FILLER, all);
    char *memory = make_memory(argv[2], all, filler);

    expect_refusal(client, argv[1], memory + OFFSET, bytes - 1, "REGION_TOO_SMALL");
    expect_refusal(client, argv[1], filler, bytes, "NOT_DEVICE_MEMORY");
    expect_refusal(client, argv[1], memory + OFFSET, all, "NOT_DEVICE_MEMORY");
    must(cudaMemcpy(got, memory, all, cudaMemcpyDeviceToHost) == cudaSuccess && memcmp(got, filler, all) == 0,
         "a refused load wrote");

    struct tc_load *load = tc_load_into(client, argv[1], NULL, &options, memory + OFFSET, bytes, &error);
    must(load != NULL, error.message);
    must(cudaMemcpy(got, memory, all, cudaMemcpyDeviceToHost) == cudaSuccess, "reading back failed");
    for (size_t i = 0; i < tc_load_n_tensors(load); i++) {
        struct tc_tensor here, there;
        tc_load_tensor(load, i, &here);
        tc_load_tensor(expected, i, &there);
        must((const char *)here.data == memory + OFFSET + here.offset, "a tensor is somewhere else");
        must(memcmp(got + OFFSET + here.offset, there.data, there.bytes) == 0, "a tensor differs");
    }
    must(memcmp(got, filler, OFFSET) == 0 && memcmp(got + OFFSET + bytes, filler, all - OFFSET - bytes) == 0,
         "bytes around the view were written");
    tc_load_release(load);
    must(cudaMemcpy(memory, filler, all, cudaMemcpyHostToDevice) == cudaSuccess, "filling failed");
    fill_targets(client, argv[1], expected, memory, all, got);
    tc_load_release(expected);
    tc_disconnect(client);
    printf("%s: %.1f MiB at an offset\n", argv[2], (double)bytes / (double)MIB);
    return 0;
}
