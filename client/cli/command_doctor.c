/* The daemon is asked first, for what the other checks want to know of it; then each row of doctor.c, then the artifact. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/reference.h"
#include "base/runtime_folder.h"
#include "base/text.h"
#include "base/version.h"
#include "bundle.h"
#include "bundle_texts.h"
#include "client/client.h"
#include "command.h"
#include "config/config_origin.h"
#include "doctor.h"
#include "served.h"

enum { MAX_CHECKS = 16, DAEMON_MS = 5000, CHECK_MS = 5000, ALL_MS = 25000, BUNDLE_S = 55, REFERENCE_MS = 10000 };

struct visit {
    struct patient patient;
    struct config_origin origin;
    struct arena arena; /* of what the daemon says */
    struct check checks[MAX_CHECKS];
    size_t n_checks;
};

static struct check *begin_check(struct visit *visit, const char *name)
{
    struct check *check = &visit->checks[visit->n_checks++];
    *check = (struct check){.name = name};
    return check;
}

/* The socket of a user's own daemon, whose configuration is another one. */
static bool is_of_user(const char *socket)
{
    char folder[PATH_MAX];
    return runtime_folder(folder) && strncmp(socket, folder, strlen(folder)) == 0;
}

/* A FIFO would wait for its writer. */
static int check_regular(const char *path, struct error *error)
{
    struct stat status;
    if (stat(path, &status) != 0 || S_ISREG(status.st_mode))
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(NOT_A_REGULAR_FILE), "the configuration %s is no regular file",
                text_show(path));
}

static void check_configuration(struct visit *visit, const char *path, struct error *error)
{
    struct check *check = begin_check(visit, "configuration");
    struct patient *patient = &visit->patient;
    bool has_origin = config_origin_init(&visit->origin, path, !path && is_of_user(patient->socket), error) == 0;
    bool may_read = has_origin && check_regular(visit->origin.path, error) == 0;
    patient->config = may_read ? config_origin_load(&visit->origin, error) : NULL;
    bool is_other = patient->config && !path && visit->origin.path && !is_of_user(patient->socket) &&
                    strcmp(patient->config->server.socket_path, patient->socket) != 0;
    if (is_other)
        check_say(check, CHECK_WARNING, "name the file of the daemon at that socket by --config",
                  "%s is of the daemon at %s, and %s is asked", config_name(patient->config),
                  patient->config->server.socket_path, patient->socket);
    else if (patient->config)
        check_say(check, CHECK_OK, NULL, "%s", config_name(patient->config));
    else
        check_say(check, CHECK_FAILED,
                  has_origin && !may_read ? "name a regular file"
                                          : "correct the file; `tensorcastd --check-config` says the same",
                  "%s", error->message);
    if (!patient->config)
        patient->config = config_defaults();
    patient->config_name = visit->origin.path ? visit->origin.path : "";
}

static void check_socket(struct visit *visit, struct backend *backend)
{
    struct check *check = begin_check(visit, "socket");
    struct patient *patient = &visit->patient;
    struct error error;
    uint64_t left_ms = backend->args->timeout_ms ? backend->args->timeout_ms : DAEMON_MS;
    const Tensorcast__Daemon__V1__StatusResponse *status =
        client_status(served_client(backend), false, left_ms, &visit->arena, &error);
    patient->daemon_pid = status ? status->pid : 0;
    patient->daemon_version = status ? status->version : "";
    patient->devices_problem = status ? status->devices_problem : "";
    if (!status && error.code == ERROR_DEADLINE_EXCEEDED)
        check_say(
            check, CHECK_FAILED,
            "systemctl status tensorcastd: if it is not active, systemd alone holds the socket, and the log says why; if it "
            "is, look for loop_stalled in its log, and restart it",
            "%s: %s", patient->socket, error.message);
    else if (!status)
        check_say(
            check, CHECK_FAILED,
            error.kind == ERROR_KIND_SOCKET_FORBIDDEN
                ? "join the group of the socket, or ask the daemon's operator"
                : "start the daemon (systemctl start tensorcastd), or name its socket by --socket or TENSORCAST_SOCKET",
            "%s: %s", patient->socket, error.message);
    else if (strcmp(status->version, version_text()) != 0)
        check_say(check, CHECK_WARNING, "install the same version of both, and restart the daemon",
                  "%s: tensorcastd %s, and this is tensorcast %s", patient->socket, status->version, version_text());
    else
        check_say(check, CHECK_OK, NULL, "%s: tensorcastd %s, %s", patient->socket, status->version, status->state);
}

static void check_reference(struct visit *visit, const struct args *all, const char *reference)
{
    struct check *check = begin_check(visit, "reference");
    struct args args = *all;
    struct backend backend;
    struct error error;
    args.standalone = true;
    args.artifact = reference;
    args.timeout_ms = REFERENCE_MS;
    struct catalog *catalog = backend_create(&backend, &args, &error) == 0 ? backend_resolve(&backend, 0, &error) : NULL;
    if (catalog)
        check_say(check, CHECK_OK, NULL, "%s: %zu tensors, read with the rights and credentials of this user",
                  text_show(reference), catalog->n_tensors);
    else
        check_say(check, CHECK_FAILED, "grep the reason in docs/errors-*.md", "%s (%s)", error.message, error.reason);
    catalog_destroy(catalog);
    backend_destroy(&backend);
}

/* Of the artifact, for a look at its disk. NULL = it is in a store. */
static const char *folder_of(const char *reference, struct arena *arena)
{
    char *folder = strncmp(reference, "disk:", strlen("disk:")) == 0 ? reference_folder_of(reference) : NULL;
    const char *path = folder ? folder : reference;
    const char *kept = strncmp(path, "disk:", strlen("disk:")) == 0
                           ? arena_text(arena, path + strlen("disk:"), strlen(path) - strlen("disk:"))
                           : NULL;
    free(folder);
    return kept;
}

static void run_rows(struct visit *visit)
{
    uint64_t until_ns = clock_now_ns() + ALL_MS * (uint64_t)NS_PER_MS;
    for (const struct doctor_row *row = doctor_rows; row->name; row++) {
        uint64_t now_ns = clock_now_ns(), left_ms = now_ns < until_ns ? (until_ns - now_ns) / NS_PER_MS : 0;
        doctor_run(row, &visit->patient, left_ms < CHECK_MS ? left_ms : CHECK_MS, begin_check(visit, row->name));
    }
}

/* --- telling --------------------------------------------------------------------------------------------------------------- */

static void put_checks(struct json_writer *json, const struct visit *visit)
{
    json_put_open(json, "checks", '[');
    for (size_t i = 0; i < visit->n_checks; i++) {
        const struct check *check = &visit->checks[i];
        json_write_open(json, '{');
        json_put_text(json, "name", check->name);
        json_put_text(json, "state", check_state_names[check->state]);
        json_put_text(json, "message", check->message);
        json_put_text_or_null(json, "advice", check->advice ? check->advice : "");
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

static char *checks_json(const struct visit *visit, const char *bundle, uint64_t bundle_bytes)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    put_checks(&json, visit);
    if (bundle) {
        json_put_text(&json, "bundle", bundle);
        json_put_u64(&json, "bundle_bytes", bundle_bytes);
    }
    json_write_close(&json, '}');
    return json.text;
}

static void print_checks(const struct visit *visit)
{
    for (size_t i = 0; i < visit->n_checks; i++) {
        const struct check *check = &visit->checks[i];
        printf("%-8s %-14s %s\n", check_state_names[check->state], check->name, check->message);
        if (check->advice && check->state > CHECK_OK && check->state < CHECK_SKIPPED)
            printf("%-23s -> %s\n", "", check->advice);
    }
}

/* --- the bundle ------------------------------------------------------------------------------------------------------------ */

static void on_late(int signal_number)
{
    static const char words[] =
        "tensorcast: DEADLINE_EXCEEDED: the bundle was not done within 55 s, and nothing was written\n";
    (void)signal_number;
    (void)!write(STDERR_FILENO, words, sizeof words - 1);
    _exit(1);
}

static int write_bundle(struct visit *visit, struct backend *backend, struct bundle *bundle, uint64_t *bytes,
                        struct error *error)
{
    char *json = checks_json(visit, NULL, 0);
    bundle_texts_add(bundle, backend, &visit->origin, &visit->patient, json);
    free(json);
    return bundle_commit(bundle, bytes, error);
}

static int tell_visit(struct visit *visit, struct backend *backend, struct bundle *bundle, struct error *error)
{
    const struct args *args = backend->args;
    uint64_t bytes = 0;
    if (bundle && write_bundle(visit, backend, bundle, &bytes, error) < 0)
        return -1;
    char *json = args->json ? checks_json(visit, bundle ? args->serve.bundle : NULL, bytes) : NULL;
    if (json)
        printf("%s\n", json);
    else if (!args->quiet)
        print_checks(visit);
    free(json);
    if (bundle && !args->json && !args->quiet)
        printf("\nwritten: %s (%s)\n", text_show(args->serve.bundle), text_show_amount(bytes));
    backend->has_told_failure = true;
    size_t n_failed = 0;
    for (size_t i = 0; i < visit->n_checks; i++)
        n_failed += visit->checks[i].state == CHECK_FAILED;
    return n_failed && !bundle ? fail(error, ERROR_FAILED_PRECONDITION, "CHECKS_FAILED", "%zu of %zu checks failed",
                                      n_failed, visit->n_checks)
                               : 0;
}

int command_doctor(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct visit visit = {0};
    struct bundle *bundle = NULL;
    struct error mistake;
    arena_init(&visit.arena, 0);
    if (args->serve.bundle) {
        bundle = bundle_create(args->serve.bundle, error);
        if (!bundle)
            return -1;
        signal(SIGALRM, on_late);
        alarm(BUNDLE_S);
    }
    const char *reference = args->artifact ? client_reference(args->artifact, &visit.arena, error) : NULL;
    int failed = args->artifact && !reference ? -1 : 0;
    if (!failed) {
        visit.patient = (struct patient){.folder = reference ? folder_of(reference, &visit.arena) : NULL,
                                         .socket = tc_socket_path(served_client(backend))};
        setenv("CREDENTIALS_DIRECTORY", "/run/credentials/tensorcastd.service",
               false); /* systemd sets it in the unit alone */
        check_configuration(&visit, args->serve.config, &mistake);
        check_socket(&visit, backend);
        run_rows(&visit);
        if (reference)
            check_reference(&visit, args, reference);
        failed = tell_visit(&visit, backend, bundle, error);
    }
    for (size_t i = 0; i < visit.n_checks; i++) {
        free(visit.checks[i].message);
        free(visit.checks[i].advice);
    }
    if (visit.patient.config && visit.patient.config != config_defaults())
        config_destroy(visit.patient.config);
    config_origin_fini(&visit.origin);
    arena_fini(&visit.arena);
    bundle_close(bundle);
    return failed;
}
