/* What `tensorcast status` shows of a daemon's answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/status_text.h"

/* Of a replica that one process holds, and what was measured of a disk and a store. The caller frees. */
static char *show(const char *command)
{
    Tensorcast__Daemon__V1__StatusResponse status = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT;
    Tensorcast__Daemon__V1__ReplicaStatus replica = TENSORCAST__DAEMON__V1__REPLICA_STATUS__INIT, *replicas[] = {&replica};
    Tensorcast__Daemon__V1__LeaseStatus lease = TENSORCAST__DAEMON__V1__LEASE_STATUS__INIT, *leases[] = {&lease};
    Tensorcast__Daemon__V1__CalibrationStatus disk = TENSORCAST__DAEMON__V1__CALIBRATION_STATUS__INIT, *disks[] = {&disk};
    Tensorcast__Daemon__V1__StoreStatus store = TENSORCAST__DAEMON__V1__STORE_STATUS__INIT, *stores[] = {&store};
    char name[32], device[16] = "8:0", origin[32] = "https://store";
    strcpy(name, command);
    lease.pid = 3447;
    lease.command = name;
    replica.leases = 1;
    replica.n_held_by = 1, replica.held_by = leases;
    status.n_replicas = 1, status.replicas = replicas;
    disk.device = device;
    disk.copy_gbps = 10.73741824;
    status.n_calibration = 1, status.calibration = disks;
    store.origin = origin;
    store.connection_gbps = 0.00524288;
    store.total_gbps = 2.147483648;
    status.n_stores = 1, status.stores = stores;
    return status_text(&status, 80);
}

static void assert_shows(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' is not in '%s'", words, text);
}

static void a_holder_has_one_blank_between_its_words_also_when_its_command_is_hidden(void **state)
{
    (void)state;
    char *named = show("VLLM::Worker"), *hidden = show("");
    assert_shows(named, "held by 3447 VLLM::Worker (root)\n");
    assert_shows(hidden, "held by 3447 (root)\n");
    free(named);
    free(hidden);
}

static void rates_are_binary_and_of_the_fitting_unit(void **state)
{
    (void)state;
    char *text = show("x");
    assert_shows(text, "copy GiB/s");
    assert_shows(text, " 10.00 ");
    assert_shows(text, " 5.00 MiB/s 2.00 GiB/s ");
    assert_null(strstr(text, "GB/s"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_holder_has_one_blank_between_its_words_also_when_its_command_is_hidden),
        cmocka_unit_test(rates_are_binary_and_of_the_fitting_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
