/* The object of `tensorcast status --json`: scripts and the page rely on its keys. */
#include "tests/support/unit.h"

#include "message/status_json.h"

TEST(names_are_escaped_and_lists_are_there_when_they_are_empty)
{
    Tensorcast__Daemon__V1__StatusResponse status = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT;
    Tensorcast__Daemon__V1__ReplicaStatus replica = TENSORCAST__DAEMON__V1__REPLICA_STATUS__INIT, *replicas[] = {&replica};
    status.version = "1.2.3";
    status.metrics_address = "127.0.0.1:9464";
    status.used_bytes = 7;
    replica.artifact = "disk:/a\"b\n";
    replica.bytes = UINT64_MAX;
    status.n_replicas = 1, status.replicas = replicas;
    char *json = status_json(&status);
    assert_non_null(strstr(json, "{\"version\":\"1.2.3\""));
    assert_non_null(strstr(json, "\"metrics_address\":\"127.0.0.1:9464\""));
    assert_non_null(strstr(json, "\"used_bytes\":7"));
    assert_non_null(strstr(json, "{\"artifact\":\"disk:/a\\\"b\\n\""));
    assert_non_null(strstr(json, "\"bytes\":18446744073709551615"));
    assert_non_null(strstr(json, "\"loads\":[]"));
    assert_non_null(strstr(json, "\"hosts\":{\"enabled\":false,\"hosts\":[]}"));
    free(json);
}

TEST(the_hosts_alone_are_the_same_object)
{
    Tensorcast__Daemon__V1__StatusResponse status = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT;
    Tensorcast__Daemon__V1__HostsStatus hosts = TENSORCAST__DAEMON__V1__HOSTS_STATUS__INIT;
    status.hosts = &hosts;
    hosts.name = "h0";
    char *whole = status_json(&status), *alone = status_hosts_json(&status);
    assert_non_null(strstr(alone, "\"enabled\":true,\"name\":\"h0\""));
    assert_non_null(strstr(whole, alone));
    free(whole);
    free(alone);
}
