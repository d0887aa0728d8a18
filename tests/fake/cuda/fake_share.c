/* Memory that processes share: what an address belongs to, CUDA IPC handles, and cudaMalloc, whose memory can be shared by
 * them only. An IPC handle names the descriptor of a memfd in the process that made it, where a thread hands it out over an
 * abstract socket: like the driver it asks no right to look into that process. Unlike a real one it can be opened by that
 * process, too, because unit tests have only one. */
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fake_private.h"

#define BEGIN(function)                                                                                                     \
    do {                                                                                                                    \
        int code_ = fake_call(function);                                                                                    \
        if (code_)                                                                                                          \
            return (CUresult)code_;                                                                                         \
    } while (0)

struct ipc { /* what our handles hold */
    char magic[8];
    int pid, fd, device;
};
_Static_assert(sizeof(struct ipc) <= sizeof(CUipcMemHandle), "a handle holds it");
static const char magic[8] = "fake-ipc";

static bool find(CUdeviceptr address, struct fake_place *place)
{
    pthread_mutex_lock(&fake_lock);
    bool is_known = fake_find(address, place);
    pthread_mutex_unlock(&fake_lock);
    return is_known;
}

/* --- cudaMalloc, and what is opened by handle ------------------------------------------------------------------------- */

static int give_address(CUmemGenericAllocationHandle handle, uint64_t bytes, int device, CUdeviceptr *address)
{
    int code = fake_reserve(bytes, address);
    if (!code)
        code = fake_map(*address, bytes, handle);
    if (!code)
        code = fake_allow(*address, bytes, device);
    fake_release(handle); /* the mapping keeps it */
    return code;
}

int fake_malloc(int device, uint64_t bytes, CUdeviceptr *address)
{
    CUmemGenericAllocationHandle handle;
    uint64_t rounded = (bytes + FAKE_GRANULARITY - 1) / FAKE_GRANULARITY * FAKE_GRANULARITY;
    int code = fake_create(device, rounded, true, &handle);
    return code ? code : give_address(handle, rounded, device, address);
}

int fake_free(CUdeviceptr address)
{
    struct fake_place place;
    if (!address)
        return 0;
    if (!find(address, &place) || place.start != address || !place.is_plain)
        return CUDA_ERROR_INVALID_VALUE;
    int code = fake_unmap(address, place.bytes);
    return code ? code : fake_free_address(address, place.bytes);
}

static socklen_t socket_of(int pid, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "tensorcast-fake-cuda-%d", pid);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

union room { /* for one descriptor */
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static void *hand_out(void *data)
{
    int listener = *(int *)data, number;
    for (int peer; (peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0; close(peer)) {
        union room room = {.head = {.cmsg_len = CMSG_LEN(sizeof number), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
        struct iovec iov = {&number, sizeof number};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof room};
        if (recv(peer, &number, sizeof number, 0) != sizeof number)
            continue;
        memcpy(CMSG_DATA(&room.head), &number, sizeof number);
        (void)!sendmsg(peer, &message, MSG_NOSIGNAL);
    }
    return NULL;
}

/* Once in each process. */
static void serve_handles(void)
{
    static int served_pid, listener;
    struct sockaddr_un address;
    pthread_t thread;
    sigset_t all, old;
    pthread_mutex_lock(&fake_lock);
    bool is_served = served_pid == getpid();
    served_pid = getpid();
    pthread_mutex_unlock(&fake_lock);
    if (is_served)
        return;
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t length = socket_of(getpid(), &address);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 64) == 0 &&
        pthread_create(&thread, NULL, hand_out, &listener) == 0)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static int ask_for(int pid, int number)
{
    union room room;
    struct sockaddr_un address;
    struct iovec iov = {&number, sizeof number};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof room};
    socklen_t length = socket_of(pid, &address);
    int peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd = -1;
    if (connect(peer, (struct sockaddr *)&address, length) == 0 && send(peer, &number, sizeof number, MSG_NOSIGNAL) > 0 &&
        recvmsg(peer, &message, MSG_CMSG_CLOEXEC) > 0 && CMSG_FIRSTHDR(&message))
        memcpy(&fd, CMSG_DATA(&room.head), sizeof fd);
    close(peer);
    return fd;
}

int fake_ipc_open(const CUipcMemHandle *handle, CUdeviceptr *address)
{
    struct ipc ipc;
    CUmemGenericAllocationHandle opened;
    memcpy(&ipc, handle, sizeof ipc);
    int fd = memcmp(ipc.magic, magic, sizeof magic) == 0 ? ask_for(ipc.pid, ipc.fd) : -1;
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t bytes = (uint64_t)lseek(fd, 0, SEEK_END);
    int code = fake_import_kind(fd, true, &opened);
    close(fd);
    return code ? code : give_address(opened, bytes, ipc.device, address);
}

/* --- the driver's functions -------------------------------------------------------------------------------------------- */

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    struct fake_place place;
    BEGIN("cuIpcGetMemHandle");
    if (!find(address, &place) || !place.is_plain)
        return CUDA_ERROR_INVALID_VALUE;
    serve_handles();
    struct ipc ipc = {.pid = getpid(), .fd = place.fd, .device = place.device};
    memcpy(ipc.magic, magic, sizeof magic);
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &ipc, sizeof ipc);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address)
{
    struct fake_place place;
    BEGIN("cuMemGetAddressRange");
    if (!find(address, &place))
        return CUDA_ERROR_INVALID_VALUE;
    *start = place.start;
    *bytes = place.bytes;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct fake_place place;
    BEGIN("cuPointerGetAttribute");
    if (!find(address, &place))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        memcpy(value, &place.device, sizeof place.device);
    else if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR)
        memcpy(value, &place.start, sizeof place.start);
    else if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE)
        memcpy(value, &place.bytes, sizeof place.bytes);
    else
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    struct fake_place place = {0};
    BEGIN("cuMemRetainAllocationHandle");
    pthread_mutex_lock(&fake_lock);
    bool is_right = fake_find((uintptr_t)address, &place) && !place.is_plain;
    if (is_right)
        fake_retain(place.handle);
    pthread_mutex_unlock(&fake_lock);
    *handle = place.handle;
    return is_right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    int device = fake_device_of(handle);
    BEGIN("cuMemGetAllocationPropertiesFromHandle");
    *properties = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    return device < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
