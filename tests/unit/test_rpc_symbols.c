/* Reflection's view of descriptors: of those that are linked in, of two files that import, and of torn ones. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "rpc/rpc_symbols.h"

extern const unsigned char _binary_descriptor_set_binpb_start[], _binary_descriptor_set_binpb_end[];

static size_t linked_bytes(void)
{
    return (size_t)(_binary_descriptor_set_binpb_end - _binary_descriptor_set_binpb_start);
}

TEST(what_the_protocol_declares_is_found_by_its_full_name)
{
    static const char *const declared[] = {"tensorcast.daemon.v1.StoreDaemon",
                                           "tensorcast.daemon.v1.StoreDaemon.Materialize",
                                           "tensorcast.daemon.v1.View",
                                           "tensorcast.daemon.v1.View.align_bytes",
                                           "tensorcast.daemon.v1.MaterializeEvent.event",
                                           "tensorcast.daemon.v1.DType",
                                           "tensorcast.daemon.v1.DTYPE_BF16",
                                           "grpc.health.v1.HealthCheckResponse.ServingStatus",
                                           "grpc.health.v1.HealthCheckResponse.NOT_SERVING",
                                           "grpc.reflection.v1alpha.ServerReflection"};
    static const char *const absent[] = {"",
                                         "tensorcast",
                                         "tensorcast.daemon.v1",
                                         "tensorcast.daemon.v1.",
                                         "tensorcast.daemon.v1.StoreDaemo",
                                         "tensorcast.daemon.v1.StoreDaemonX",
                                         "tensorcast.daemon.v1.StoreDaemon.",
                                         "tensorcast.daemon.v1.StoreDaemon.materialize",
                                         "tensorcast.daemon.v1.View.names.x",
                                         "tensorcast.daemon.v1.DType.DTYPE_BF16",
                                         "StoreDaemon",
                                         ".tensorcast.daemon.v1.StoreDaemon"};
    struct rpc_symbols *symbols = rpc_symbols_create(_binary_descriptor_set_binpb_start, linked_bytes());
    for (size_t i = 0; i < sizeof declared / sizeof declared[0]; i++)
        if (rpc_symbols_find(symbols, declared[i]) < 0)
            fail_msg("%s is not found", declared[i]);
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        if (rpc_symbols_find(symbols, absent[i]) >= 0)
            fail_msg("%s is found", absent[i]);
    assert_int_equal(rpc_symbols_find(symbols, "tensorcast.daemon.v1.View"),
                     rpc_symbols_find_file(symbols, "tensorcast/daemon/v1/store_daemon.proto"));
    assert_int_equal(rpc_symbols_find_file(symbols, "store_daemon.proto"), -1);
    rpc_symbols_destroy(symbols);
    rpc_symbols_destroy(NULL);
}

/* a.proto imports b.proto, which imports a.proto back and one that is missing. No package: the names are bare. */
static const char two_files[] = "\x0a\x17"
                                "\x0a\x07"
                                "a.proto"
                                "\x1a\x07"
                                "b.proto"
                                "\x22\x03\x0a\x01"
                                "A"
                                "\x0a\x20"
                                "\x0a\x07"
                                "b.proto"
                                "\x1a\x07"
                                "a.proto"
                                "\x1a\x07"
                                "c.proto"
                                "\x22\x03\x0a\x01"
                                "B";

TEST(a_file_brings_its_imports_once_each)
{
    int needed[2];
    size_t bytes;
    struct rpc_symbols *symbols = rpc_symbols_create(two_files, sizeof two_files - 1);
    assert_int_equal(rpc_symbols_n_files(symbols), 2);
    assert_int_equal(rpc_symbols_find(symbols, "B"), 1);
    assert_int_equal(rpc_symbols_closure(symbols, 1, needed), 2);
    assert_true(needed[0] == 1 && needed[1] == 0);
    assert_memory_equal(rpc_symbols_file(symbols, 0, &bytes), two_files + 2, 23);
    assert_int_equal(bytes, 23);
    rpc_symbols_destroy(symbols);
}

TEST(torn_descriptors_are_survived)
{
    for (size_t count = 0; count <= sizeof two_files - 1; count++) {
        char *torn = memory_alloc(count + 1); /* of exactly that size for the sanitizer */
        memcpy(torn, two_files, count);
        struct rpc_symbols *symbols = rpc_symbols_create(torn, count);
        assert_int_equal(rpc_symbols_find(symbols, "nobody"), -1);
        assert_true(rpc_symbols_n_files(symbols) <= 2);
        rpc_symbols_destroy(symbols);
        free(torn);
    }
}
