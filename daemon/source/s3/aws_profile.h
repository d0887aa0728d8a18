/* ~/.aws/config and ~/.aws/credentials, or the files that AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE name: sections of
 * settings. Read anew whenever keys are looked for, because tools rotate them in place. Const once loaded; any thread. */
#ifndef SOURCE_AWS_PROFILE_H
#define SOURCE_AWS_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

enum aws_file { AWS_FILE_CONFIG, AWS_FILE_CREDENTIALS, AWS_N_FILES };

struct aws_profiles;

/* A file that is missing is empty; one that cannot be read too, but see aws_profiles_problem(). */
struct aws_profiles *aws_profiles_load(void);
/* From texts, for tests; either may be NULL. */
struct aws_profiles *aws_profiles_parse(const char *config, const char *credentials);
void aws_profiles_destroy(struct aws_profiles *profiles); /* accepts NULL */

bool aws_profiles_has(const struct aws_profiles *profiles, const char *profile);
bool aws_profiles_any_has(const struct aws_profiles *profiles, const char *key); /* a profile that sets it */
/* Of the credentials file, then of the config file; NULL when neither has it or it is empty. */
const char *aws_profiles_get(const struct aws_profiles *profiles, const char *profile, const char *key);
const char *aws_profiles_get_from(const struct aws_profiles *profiles, enum aws_file file, const char *profile,
                                  const char *key);
/* endpoint_url of a service ("s3", "sts"): of the profile's [services NAME], then the profile's own; or NULL. */
const char *aws_profiles_endpoint(const struct aws_profiles *profiles, const char *profile, const char *service);

const char *aws_profiles_path(const struct aws_profiles *profiles, enum aws_file file); /* "" when parsed from a text */
const char *aws_profiles_problem(const struct aws_profiles *profiles); /* why a file could not be read; NULL = all well */

#endif
