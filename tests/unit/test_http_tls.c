/* Whom the HTTP engine trusts: against a TLS server of the openssl command with a certificate made for the occasion. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "source/http/http.h"

static char folder[] = "/tmp/test_http_tls.XXXXXX", own_ca[64], other_ca[64];
static unsigned port;
static pid_t server = -1;
static int server_input = -1;
static const char *const variables[] = {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "SSL_CERT_FILE",
                                        "SSL_CERT_DIR"};
enum { N_VARIABLES = sizeof variables / sizeof variables[0] };

static bool make_certificate(const char *name)
{
    char command[512];
    snprintf(command, sizeof command,
             "cd %s && openssl req -x509 -newkey rsa:2048 -nodes -keyout %s.key -out %s.pem -days 1 -subj /CN=localhost "
             "-addext subjectAltName=DNS:localhost 2>/dev/null && echo hello > f",
             folder, name, name);
    return system(command) == 0;
}

static void run_server(int input, int output)
{
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    if (chdir(folder) == 0)
        execlp("openssl", "openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", "own.pem", "-key", "own.key", "-WWW",
               NULL);
    _exit(127);
}

static bool start_server(void)
{
    int input[2], output[2];
    char line[256] = "";
    if (pipe2(input, O_CLOEXEC) || pipe2(output, O_CLOEXEC))
        return false;
    server = fork();
    if (server == 0)
        run_server(input[0], output[1]);
    close(input[0]);
    close(output[1]);
    server_input = input[1];
    FILE *lines = fdopen(output[0], "r");
    while (port == 0 && fgets(line, sizeof line, lines))
        if (sscanf(line, "ACCEPT 127.0.0.1:%u", &port) != 1)
            port = 0;
    fclose(lines);
    return port != 0;
}

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_VARIABLES; i++)
        unsetenv(variables[i]);
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(folder) || !make_certificate("own") || !make_certificate("other") || !start_server())
        return -1;
    snprintf(own_ca, sizeof own_ca, "%s/own.pem", folder);
    snprintf(other_ca, sizeof other_ca, "%s/other.pem", folder);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    close(server_input);
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) == 0 ? 0 : -1;
}

static const char *store_ca;

static int name_ca(void *data, struct http_attempt *attempt, struct error *error)
{
    (void)data, (void)error;
    attempt->ca_file = store_ca;
    return 0;
}

static int fetch(const char *ca_file, const char *host, struct error *error)
{
    const struct http_store store = {.prepare = name_ca};
    struct http_engine_options options = {.ca_file = ca_file, .backoff_ms = 2};
    struct http_engine *engine;
    struct http_reply reply;
    char url[64];
    assert_int_equal(http_engine_create(&options, &engine, error), 0);
    snprintf(url, sizeof url, "https://%s:%u/f", host, port);
    struct http_call call = {.store = &store, .url = url, .max_reply_bytes = 100};
    int result = http_fetch(engine, &call, &reply, error);
    if (result == 0) {
        assert_string_equal(reply.body, "hello\n");
        http_reply_clear(&reply);
    }
    http_engine_destroy(engine);
    return result;
}

/* Its error names the CA file, after one try. */
static void assert_not_trusted(const char *ca_file, const char *host, const char *part)
{
    struct error error;
    assert_int_equal(fetch(ca_file, host, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(error.reason, "TLS_FAILED");
    assert_non_null(strstr(error.message, part));
    assert_non_null(strstr(error.message, "1 try"));
}

static void assert_trusted(const char *ca_file)
{
    struct error error;
    assert_int_equal(fetch(ca_file, "localhost", &error), 0);
}

TEST(a_server_of_the_given_ca_is_trusted_by_the_name_of_its_certificate)
{
    assert_trusted(own_ca);
    assert_not_trusted(other_ca, "localhost", other_ca);
    assert_not_trusted(NULL, "localhost", "");
    assert_not_trusted(own_ca, "127.0.0.1", "127.0.0.1");
}

TEST(the_environment_names_the_ca_in_its_order_and_options_come_first)
{
    for (size_t i = N_VARIABLES; i > 0; i--) {
        setenv(variables[i - 1], own_ca, 1);
        assert_trusted(NULL);
        assert_not_trusted(other_ca, "localhost", other_ca);
        setenv(variables[i - 1], other_ca, 1);
        assert_not_trusted(NULL, "localhost", other_ca);
        assert_trusted(own_ca);
    }
    for (size_t i = 0; i < N_VARIABLES; i++)
        unsetenv(variables[i]);
}

TEST(a_folder_of_authorities_is_taken_like_a_file)
{
    char command[256], hashed[64];
    snprintf(hashed, sizeof hashed, "%s/hashed", folder);
    snprintf(command, sizeof command, "mkdir %s && cp %s %s && openssl rehash %s", hashed, own_ca, hashed, hashed);
    assert_int_equal(system(command), 0);
    assert_trusted(hashed);
    setenv("SSL_CERT_DIR", hashed, 1);
    assert_trusted(NULL);
    setenv("SSL_CERT_DIR", "/no/such/folder", 1); /* which is no reason to refuse to start */
    assert_not_trusted(NULL, "localhost", "");
    unsetenv("SSL_CERT_DIR");
}

TEST(a_stores_own_authority_comes_before_the_environments_and_after_the_options)
{
    setenv("REQUESTS_CA_BUNDLE", other_ca, 1);
    store_ca = own_ca;
    assert_trusted(NULL);
    assert_not_trusted(other_ca, "localhost", other_ca);
    store_ca = other_ca;
    setenv("REQUESTS_CA_BUNDLE", own_ca, 1);
    assert_not_trusted(NULL, "localhost", other_ca);
    store_ca = NULL;
    unsetenv("REQUESTS_CA_BUNDLE");
}

TEST(a_ca_file_that_is_not_there_is_refused_at_once)
{
    struct http_engine_options options = {.ca_file = "/no/such/ca.pem"};
    struct http_engine *engine;
    struct error error;
    assert_int_equal(http_engine_create(&options, &engine, &error), -1);
    assert_non_null(strstr(error.message, "/no/such/ca.pem"));
}

TESTS_IN(set_up, tear_down)
