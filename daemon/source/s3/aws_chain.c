/* A table of providers in botocore's order. Each tells without asking anyone whether it is configured, and if so under what
 * name; the first one that is loads the keys. A role is assumed with the keys of another profile or of one named provider.
 */
#include "source/s3/aws_chain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/environment.h"
#include "source/s3/aws_metadata.h"
#include "source/s3/aws_process.h"
#include "source/s3/aws_profile.h"
#include "source/s3/aws_sts.h"

enum { MAX_ROLES = 5 }; /* that lead to one another */

struct walk {
    const struct aws_chain *chain;
    const struct aws_profiles *profiles;
    const struct cancel *cancel;
    const char *profile;
    bool use_environment; /* false for a source_profile: that profile is meant and nothing else */
    int n_roles;
};

static const char *get(const struct walk *walk, const char *key)
{
    return aws_profiles_get(walk->profiles, walk->profile, key);
}

bool aws_chain_environment_names(const char *profile)
{
    const char *named = environment_get("AWS_PROFILE");
    if (!named)
        named = environment_get("AWS_DEFAULT_PROFILE");
    return named && strcmp(named, profile) == 0;
}

static const char *shown_profile(const char *text, char out[TEXT_NAME_CHARS])
{
    return text_escape(text, strlen(text), out);
}

static int fill_static(struct aws_keys *keys, const char *access_key, const char *secret_key, const char *token)
{
    *keys = (struct aws_keys){memory_copy_text(access_key), memory_copy_text(secret_key),
                              token ? memory_copy_text(token) : NULL, 0, 0};
    return 0;
}

/* --- environment --- */

static bool has_environment(const struct walk *walk)
{
    return walk->use_environment && environment_get("AWS_ACCESS_KEY_ID");
}

static int load_environment(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    const char *secret = environment_get("AWS_SECRET_ACCESS_KEY"), *token = environment_get("AWS_SESSION_TOKEN");
    (void)walk;
    if (!secret)
        return fail(error, ERROR_PERMISSION_DENIED, "PARTIAL_CREDENTIALS",
                    "AWS_ACCESS_KEY_ID is set but AWS_SECRET_ACCESS_KEY is not");
    return fill_static(keys, environment_get("AWS_ACCESS_KEY_ID"), secret,
                       token ? token : environment_get("AWS_SECURITY_TOKEN"));
}

/* --- keys of a profile --- */

static int load_keys(const struct walk *walk, enum aws_file file, struct aws_keys *keys, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    const char *secret = aws_profiles_get_from(walk->profiles, file, walk->profile, "aws_secret_access_key");
    const char *token = aws_profiles_get_from(walk->profiles, file, walk->profile, "aws_session_token");
    if (!token)
        token = aws_profiles_get_from(walk->profiles, file, walk->profile, "aws_security_token");
    if (!secret)
        return fail(error, ERROR_PERMISSION_DENIED, "PARTIAL_CREDENTIALS",
                    "profile %s has an aws_access_key_id but no aws_secret_access_key", shown_profile(walk->profile, text));
    return fill_static(keys, aws_profiles_get_from(walk->profiles, file, walk->profile, "aws_access_key_id"), secret, token);
}

static bool has_shared(const struct walk *walk)
{
    return aws_profiles_get_from(walk->profiles, AWS_FILE_CREDENTIALS, walk->profile, "aws_access_key_id");
}

static int load_shared(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    return load_keys(walk, AWS_FILE_CREDENTIALS, keys, error);
}

static bool has_config(const struct walk *walk)
{
    return aws_profiles_get_from(walk->profiles, AWS_FILE_CONFIG, walk->profile, "aws_access_key_id");
}

static int load_config(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    return load_keys(walk, AWS_FILE_CONFIG, keys, error);
}

/* --- credential_process --- */

static bool has_process(const struct walk *walk)
{
    return get(walk, "credential_process");
}

static int load_process(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    if (aws_process_run(get(walk, "credential_process"), walk->cancel, keys, error) < 0)
        return error_prefix(error, "profile %s", shown_profile(walk->profile, text));
    return 0;
}

/* --- single sign-on --- */

static bool has_sso(const struct walk *walk)
{
    return get(walk, "sso_session") || get(walk, "sso_start_url");
}

static int load_sso(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    (void)keys;
    return fail(error, ERROR_UNIMPLEMENTED, "SSO_NOT_SUPPORTED",
                "profile %s signs in by SSO, which is not supported here; give it a credential_process, for example "
                "\"aws configure export-credentials --profile NAME\"",
                shown_profile(walk->profile, text));
}

/* --- container and instance --- */

static bool has_container(const struct walk *walk)
{
    (void)walk;
    return environment_get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
           environment_get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

static int load_container(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    return aws_metadata_container(walk->chain->http, walk->cancel, keys, error);
}

static bool has_instance(const struct walk *walk)
{
    (void)walk;
    return aws_metadata_instance_allowed();
}

static int load_instance(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    return aws_metadata_instance(walk->chain->http, walk->cancel, keys, error);
}

/* --- roles --- */

static int load_from(struct walk *walk, const char *credential_source, struct aws_keys *keys, struct error *error);
static int load_profile(struct walk *walk, struct aws_keys *keys, struct error *error);

static struct aws_sts sts_of(const struct walk *walk)
{
    const char *own = environment_get("AWS_ENDPOINT_URL_STS"), *all = environment_get("AWS_ENDPOINT_URL");
    const char *endpoint = own ? own : all ? all : aws_profiles_endpoint(walk->profiles, walk->chain->profile, "sts");
    const char *region =
        *walk->chain->region ? walk->chain->region : aws_profiles_get(walk->profiles, walk->chain->profile, "region");
    return (struct aws_sts){walk->chain->http, endpoint, region, walk->chain->ca_file, walk->cancel};
}

static struct aws_role role_of(const struct walk *walk)
{
    return (struct aws_role){get(walk, "role_arn"), get(walk, "role_session_name"), get(walk, "external_id"),
                             get(walk, "duration_seconds")};
}

static bool has_keys(const struct walk *walk, const char *profile)
{
    return aws_profiles_get(walk->profiles, profile, "aws_access_key_id");
}

static bool has_role(const struct walk *walk)
{
    return get(walk, "role_arn") && !get(walk, "web_identity_token_file");
}

static int check_role(const struct walk *walk, struct error *error)
{
    char text[TEXT_NAME_CHARS], other[TEXT_NAME_CHARS];
    const char *source = get(walk, "source_profile"), *name = shown_profile(walk->profile, text);
    if (get(walk, "mfa_serial"))
        return fail(
            error, ERROR_UNIMPLEMENTED, "MFA_NOT_SUPPORTED",
            "profile %s wants a code for mfa_serial, and nobody is here to type it; give the daemon a session's keys in "
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or a profile with credential_process",
            name);
    if (!source == !get(walk, "credential_source"))
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PROFILE",
                    "profile %s has a role_arn and needs either source_profile or credential_source", name);
    if (source && !aws_profiles_has(walk->profiles, source))
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PROFILE", "the source_profile %s of profile %s does not exist",
                    shown_profile(source, other), name);
    if (walk->n_roles >= MAX_ROLES)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PROFILE", "the roles of profile %s lead to one another", name);
    return 0;
}

static int load_source(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    struct walk source = *walk;
    source.n_roles++;
    source.use_environment = false;
    if (!get(walk, "source_profile"))
        return load_from(&source, get(walk, "credential_source"), keys, error);
    source.profile = get(walk, "source_profile");
    if (strcmp(source.profile, walk->profile) == 0 && !has_keys(walk, walk->profile))
        source.n_roles = MAX_ROLES; /* it means its own keys and has none */
    return load_profile(&source, keys, error);
}

static int load_role(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    struct aws_keys with;
    if (check_role(walk, error) < 0)
        return -1;
    if (load_source(walk, &with, error) < 0)
        return error_prefix(error, "for the role of profile %s", shown_profile(walk->profile, text));
    struct aws_sts sts = sts_of(walk);
    struct aws_role role = role_of(walk);
    int failed = aws_sts_assume_role(&sts, &role, &with, keys, error);
    aws_keys_clear(&with);
    return failed;
}

/* --- web identity --- */

static const char *identity_file(const struct walk *walk)
{
    const char *file = walk->use_environment ? environment_get("AWS_WEB_IDENTITY_TOKEN_FILE") : NULL;
    return file ? file : get(walk, "web_identity_token_file");
}

static bool has_identity(const struct walk *walk)
{
    return identity_file(walk);
}

static int load_identity(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    struct aws_sts sts = sts_of(walk);
    struct aws_role role = role_of(walk);
    if (walk->use_environment && environment_get("AWS_ROLE_ARN"))
        role.arn = environment_get("AWS_ROLE_ARN");
    if (walk->use_environment && environment_get("AWS_ROLE_SESSION_NAME"))
        role.session_name = environment_get("AWS_ROLE_SESSION_NAME");
    if (!role.arn)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_WEB_IDENTITY",
                    "there is a web identity token file, but neither AWS_ROLE_ARN nor a role_arn");
    return aws_sts_assume_role_with_web_identity(&sts, &role, identity_file(walk), keys, error);
}

/* --- the chain --- */

struct provider {
    const char *source; /* as credential_source spells it, or NULL */
    bool of_profile;    /* part of the chain of a source_profile */
    bool (*is_configured)(const struct walk *walk);
    int (*load)(const struct walk *walk, struct aws_keys *keys, struct error *error);
    const char *label; /* for people: $P the profile, $R its role, $I the token file, $C and $S the files */
};

static const struct provider providers[] = {
    {"Environment", false, has_environment, load_environment, "environment (AWS_ACCESS_KEY_ID)"},
    {NULL, false, has_role, load_role, "role $R of profile $P"},
    {NULL, true, has_identity, load_identity, "web identity token file $I"},
    {NULL, true, has_shared, load_shared, "profile $P of $S"},
    {NULL, true, has_process, load_process, "credential_process of profile $P"},
    {NULL, true, has_config, load_config, "profile $P of $C"},
    {NULL, true, has_sso, load_sso, "SSO of profile $P (not supported)"},
    {"EcsContainer", false, has_container, load_container, "container credentials endpoint"},
    {"Ec2InstanceMetadata", false, has_instance, load_instance, "instance metadata (nothing else is configured)"},
};
enum { N_PROVIDERS = sizeof providers / sizeof providers[0] };

static int load_from(struct walk *walk, const char *credential_source, struct aws_keys *keys, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    walk->use_environment = true;
    for (size_t i = 0; i < N_PROVIDERS; i++) {
        if (providers[i].source && strcmp(providers[i].source, credential_source) == 0 && providers[i].is_configured(walk))
            return providers[i].load(walk, keys, error);
    }
    return fail(error, ERROR_PERMISSION_DENIED, "NO_CREDENTIALS", "credential_source %s gives no keys",
                shown_profile(credential_source, text));
}

/* Of a source_profile: its keys before its role, because a profile may assume a role with its own keys. */
static int load_profile(struct walk *walk, struct aws_keys *keys, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    if (has_role(walk) && !has_keys(walk, walk->profile))
        return load_role(walk, keys, error);
    for (size_t i = 0; i < N_PROVIDERS; i++) {
        if (providers[i].of_profile && providers[i].is_configured(walk))
            return providers[i].load(walk, keys, error);
    }
    return fail(error, ERROR_PERMISSION_DENIED, "NO_CREDENTIALS", "profile %s has no keys",
                shown_profile(walk->profile, text));
}

static const struct provider *find_provider(const struct walk *walk)
{
    for (size_t i = 0; i < N_PROVIDERS; i++) {
        if (providers[i].is_configured(walk))
            return &providers[i];
    }
    return NULL;
}

static const char *label_part(const struct walk *walk, char letter)
{
    switch (letter) {
    case 'P':
        return walk->profile;
    case 'R':
        return get(walk, "role_arn");
    case 'I':
        return identity_file(walk);
    default:
        return aws_profiles_path(walk->profiles, letter == 'C' ? AWS_FILE_CONFIG : AWS_FILE_CREDENTIALS);
    }
}

/* Instance metadata is the guess when nothing is configured; its failure means there is nothing at all. */
static int fail_nothing(const struct walk *walk, const char *reason, struct error *error)
{
    char profile[TEXT_NAME_CHARS], cut[400], files[300], owner[ENVIRONMENT_OWNER_CHARS];
    const char *problem = aws_profiles_problem(walk->profiles);
    snprintf(cut, sizeof cut, "%s", reason);
    snprintf(files, sizeof files, "no keys in %s, %s", aws_profiles_path(walk->profiles, AWS_FILE_CONFIG),
             aws_profiles_path(walk->profiles, AWS_FILE_CREDENTIALS));
    fail(error, ERROR_PERMISSION_DENIED, "NO_CREDENTIALS",
         "%s has no credentials for S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY %s, or for a public bucket "
         "sources.s3.anonymous: true. Tried:\n"
         "environment: AWS_ACCESS_KEY_ID is not set\n"
         "profile %.60s: %.300s\n"
         "web identity: AWS_WEB_IDENTITY_TOKEN_FILE is not set\n"
         "container: no AWS_CONTAINER_CREDENTIALS_*_URI is set\n"
         "instance: %s",
         environment_owner(owner), environment_remedy(), shown_profile(walk->profile, profile), problem ? problem : files,
         cut);
    return environment_note(error, "AWS_ACCESS_KEY_ID AWS_PROFILE AWS_WEB_IDENTITY_TOKEN_FILE AWS_SHARED_CREDENTIALS_FILE");
}

static int load_first(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    char profile[TEXT_NAME_CHARS];
    const struct provider *provider = find_provider(walk);
    if (strcmp(walk->profile, "default") != 0 && !aws_profiles_has(walk->profiles, walk->profile) &&
        (!provider || provider->load == load_instance))
        return fail(error, ERROR_PERMISSION_DENIED, "NO_SUCH_PROFILE", "there is no profile %s in %s or %s",
                    shown_profile(walk->profile, profile), aws_profiles_path(walk->profiles, AWS_FILE_CONFIG),
                    aws_profiles_path(walk->profiles, AWS_FILE_CREDENTIALS));
    if (!provider)
        return fail_nothing(walk, "AWS_EC2_METADATA_DISABLED is set", error);
    if (provider->load(walk, keys, error) == 0)
        return 0;
    if (provider->load != load_instance || error->code == ERROR_CANCELLED)
        return error_prefix(error, "keys for S3");
    char reason[ERROR_MESSAGE_CHARS];
    memcpy(reason, error->message, sizeof reason);
    return fail_nothing(walk, reason, error);
}

int aws_chain_load(const struct aws_chain *chain, const struct cancel *cancel, struct aws_keys *keys, struct error *error)
{
    struct aws_profiles *profiles = aws_profiles_load();
    const struct walk walk = {chain, profiles, cancel, chain->profile, chain->use_environment, 0};
    *keys = (struct aws_keys){0};
    int failed = load_first(&walk, keys, error);
    aws_profiles_destroy(profiles);
    return failed;
}

void aws_chain_describe(const struct aws_chain *chain, char *text, size_t text_chars)
{
    struct aws_profiles *profiles = aws_profiles_load();
    const struct walk walk = {chain, profiles, NULL, chain->profile, chain->use_environment, 0};
    const struct provider *provider = find_provider(&walk);
    snprintf(text, text_chars, "none");
    const char *label = provider ? provider->label : "";
    for (size_t length = 0; *label && length < text_chars; label++) {
        char part[TEXT_NAME_CHARS], letter[] = {*label, '\0'};
        const char *next = *label == '$' ? shown_profile(label_part(&walk, *++label), part) : letter;
        length += (size_t)snprintf(text + length, text_chars - length, "%.100s", next);
    }
    aws_profiles_destroy(profiles);
}

bool aws_chain_of_instance(const struct aws_chain *chain)
{
    struct aws_profiles *profiles = aws_profiles_load();
    const struct walk walk = {chain, profiles, NULL, chain->profile, chain->use_environment, 0};
    const struct provider *provider = find_provider(&walk);
    aws_profiles_destroy(profiles);
    return provider && provider->load == load_instance;
}
