/* The section `hosts`: what cannot work is refused with the key's name, and secrets that others can read are not used. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hosts/host_settings.h"

static char folder[] = "/tmp/tc-hosts-XXXXXX", path[64];
static const char *const endpoint[] = {"http://127.0.0.1:2379"};
static struct config_hosts config;

static const char *file(const char *name, const char *bytes, size_t count, mode_t mode)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, bytes, count), count);
    fchmod(fd, mode);
    close(fd);
    return path;
}

static int set_up(void **state __attribute__((unused)))
{
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state __attribute__((unused)))
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}
TESTS_IN(set_up, tear_down)

static void use_defaults(void)
{
    config = config_defaults()->hosts;
    config.etcd.endpoints.items = endpoint;
    config.etcd.endpoints.n_items = 1;
    config.name = "h1";
    config.listen = "127.0.0.1:0";
}

static void refuses(const char *key)
{
    struct host_settings settings;
    struct error error;
    assert_int_equal(host_settings_read(&config, &settings, &error), -1);
    if (!strstr(error.message, key))
        fail_msg("%s is not in: %s", key, error.message);
    host_settings_fini(&settings);
}

TEST(a_loopback_address_needs_no_proof_and_any_other_does)
{
    struct host_settings settings;
    struct error error;
    use_defaults();
    assert_int_equal(host_settings_read(&config, &settings, &error), 0);
    assert_string_equal(settings.name, "h1");
    host_settings_fini(&settings);
    for (const char *const *open = (const char *const[]){"0.0.0.0:0", "10.0.0.7:7070", "[::]:0", NULL}; *open; open++) {
        config.listen = *open;
        refuses("hosts.cluster_key_file");
    }
    config.listen = "[::1]:7070";
    assert_int_equal(host_settings_read(&config, &settings, &error), 0);
    host_settings_fini(&settings);
}

TEST(a_cluster_key_is_32_bytes_that_only_its_owner_may_read)
{
    char key[40] = "key";
    struct host_settings settings;
    struct error error;
    use_defaults();
    config.cluster_key_file = file("key", key, 31, 0600);
    refuses("32 bytes");
    config.cluster_key_file = file("key", key, 33, 0600);
    refuses("32 bytes");
    config.cluster_key_file = file("key", key, 32, 0640);
    refuses("hosts.cluster_key_file");
    config.cluster_key_file = file("key", key, 32, 0400);
    config.listen = "0.0.0.0:7070";
    assert_int_equal(host_settings_read(&config, &settings, &error), 0);
    assert_true(settings.has_key);
    assert_memory_equal(settings.key, key, 32);
    host_settings_fini(&settings);
    config.cluster_key_file = "/nowhere/key";
    refuses("hosts.cluster_key_file");
    config.cluster_key_file = folder;
    refuses("hosts.cluster_key_file");
}

TEST(a_key_among_systemds_credentials_may_have_a_right_of_the_group)
{
    char key[32] = "key";
    struct host_settings settings;
    struct error error;
    use_defaults();
    config.cluster_key_file = file("key", key, sizeof key, 0440);
    setenv("CREDENTIALS_DIRECTORY", "/tmp", 1);
    assert_int_equal(host_settings_read(&config, &settings, &error), 0);
    host_settings_fini(&settings);
    setenv("CREDENTIALS_DIRECTORY", "/tm", 1);
    refuses("only its owner may read it");
    unsetenv("CREDENTIALS_DIRECTORY");
    refuses("only its owner may read it");
}

TEST(half_a_setting_is_named)
{
    use_defaults();
    config.tls.cert_file = "/x.crt";
    refuses("hosts.tls.key_file");
    use_defaults();
    config.tls.key_file = "/x.key";
    refuses("hosts.tls.cert_file");
    use_defaults();
    config.tls.cert_file = config.tls.key_file = file("pem", "pem", 3, 0644);
    refuses("hosts.tls.ca_file");
    use_defaults();
    config.etcd.cert_file = "/x.crt";
    refuses("hosts.etcd.key_file");
    use_defaults();
    config.etcd.username = "u";
    refuses("hosts.etcd.password_file");
    config.etcd.password_file = file("password", "secret\n", 7, 0644);
    refuses("hosts.etcd.password_file");
}

TEST(a_password_is_the_first_line_of_its_file)
{
    struct host_settings settings;
    struct error error;
    use_defaults();
    config.etcd.username = "u";
    config.etcd.password_file = file("password", "secret\nmore\n", 12, 0600);
    assert_int_equal(host_settings_read(&config, &settings, &error), 0);
    assert_string_equal(settings.password, "secret");
    host_settings_fini(&settings);
}

TEST(a_file_of_256_kib_is_read_and_the_rest_of_a_longer_one_is_not)
{
    struct host_settings settings;
    struct error error;
    char *big = calloc(1, (256 << 10) + 1);
    memset(big, 'p', (256 << 10) + 1);
    use_defaults();
    config.etcd.username = "u";
    config.etcd.password_file = file("big", big, (256 << 10) + 1, 0600);
    assert_int_equal(host_settings_read(&config, &settings, &error), 0);
    assert_int_equal(strlen(settings.password), 256 << 10);
    host_settings_fini(&settings);
    free(big);
}

TEST(names_and_addresses_that_are_none_are_refused)
{
    static const char *const members[] = {"http://a:1", "https://b:1"};
    for (const char *const *bad = (const char *const[]){"nowhere", ":1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "::1:1",
                                                        "[::1:1", "a.b:1", NULL};
         *bad; bad++) {
        use_defaults();
        config.listen = *bad;
        refuses("hosts.listen");
    }
    use_defaults();
    config.name = "a/b";
    refuses("hosts.name");
    use_defaults();
    config.domain = "a b";
    refuses("hosts.domain");
    use_defaults();
    config.etcd.prefix = "relative";
    refuses("hosts.etcd.prefix");
    use_defaults();
    config.etcd.endpoints = (struct config_list){members, 2};
    refuses("hosts.etcd.endpoints");
    for (const char *const *bad = (const char *const[]){"s3://a:1", "http://", "http://a", "https://[::1]",
                                                        "http://a:", "http://a:1/v3", "a", NULL};
         *bad; bad++) {
        config.etcd.endpoints = (struct config_list){bad, 1};
        refuses("hosts.etcd.endpoints");
    }
}

TEST(an_endpoint_may_end_with_a_slash)
{
    static const char *const slash[] = {"http://a:1/"};
    struct host_settings settings;
    struct error error;
    use_defaults();
    config.etcd.endpoints = (struct config_list){slash, 1};
    assert_int_equal(host_settings_read(&config, &settings, &error), 0);
    host_settings_fini(&settings);
}
