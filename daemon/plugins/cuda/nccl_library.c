/* The functions of NCCL that are used, found by name; their prototypes are those of <nccl.h>. A library that is missing
 * today may be there tomorrow, so only success is remembered. It is never closed: it leaves threads behind. */
#include <dlfcn.h>
#include <pthread.h>

#include "nccl_private.h"

enum { OLDEST = NCCL_VERSION(2, 19, 0) };

static const char file[] = "libnccl.so.2";

#define ROW(member, symbol)                                                                                                 \
    {                                                                                                                       \
        symbol, (void **)&library->member                                                                                   \
    }

static int find_functions(void *handle, struct nccl_library *library, struct error *error)
{
    const struct {
        const char *symbol;
        void **place;
    } rows[] = {
        ROW(get_version, "ncclGetVersion"),
        ROW(get_unique_id, "ncclGetUniqueId"),
        ROW(init_rank, "ncclCommInitRankConfig"),
        ROW(get_async_error, "ncclCommGetAsyncError"),
        ROW(finalize, "ncclCommFinalize"),
        ROW(destroy, "ncclCommDestroy"),
        ROW(abort, "ncclCommAbort"),
        ROW(group_start, "ncclGroupStart"),
        ROW(group_end, "ncclGroupEnd"),
        ROW(send, "ncclSend"),
        ROW(recv, "ncclRecv"),
        ROW(broadcast, "ncclBroadcast"),
        ROW(error_string, "ncclGetErrorString"),
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        *rows[i].place = dlsym(handle, rows[i].symbol);
        if (!*rows[i].place)
            return fail(error, ERROR_FAILED_PRECONDITION, "NCCL_UNUSABLE", "%s has no %s", file, rows[i].symbol);
    }
    int version = 0;
    ncclResult_t code = library->get_version(&version);
    if (code != ncclSuccess)
        return fail(error, ERROR_FAILED_PRECONDITION, "NCCL_UNUSABLE", "%s does not tell its version: %s", file,
                    library->error_string(code));
    if (version < OLDEST)
        return fail(error, ERROR_FAILED_PRECONDITION, "NCCL_UNUSABLE", "%s is version %d, which is older than %d", file,
                    version, OLDEST);
    return 0;
}

static int open_library(struct nccl_library *library, struct error *error)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return fail(error, ERROR_FAILED_PRECONDITION, "NCCL_MISSING", "%s", dlerror());
    if (find_functions(handle, library, error) == 0)
        return 0;
    dlclose(handle);
    return -1;
}

const struct nccl_library *nccl_library_open(struct error *error)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct nccl_library library;
    static bool is_open;
    pthread_mutex_lock(&lock);
    is_open = is_open || open_library(&library, error) == 0;
    const struct nccl_library *result = is_open ? &library : NULL;
    pthread_mutex_unlock(&lock);
    return result;
}
