/* Keys and region from the machine itself: the container's credentials endpoint (ECS, EKS Pod Identity) and the instance
 * metadata service in version 2. Plain HTTP to fixed local addresses, past every proxy. Blocks; any thread but the loop's.
 */
#ifndef SOURCE_AWS_METADATA_H
#define SOURCE_AWS_METADATA_H

#include <stdbool.h>

#include "base/cancel.h"
#include "source/s3/aws_keys.h"
#include "source/http/http.h"

int aws_metadata_container(struct http_engine *http, const struct cancel *cancel, struct aws_keys *keys,
                           struct error *error);

bool aws_metadata_instance_allowed(void); /* AWS_EC2_METADATA_DISABLED */
int aws_metadata_instance(struct http_engine *http, const struct cancel *cancel, struct aws_keys *keys, struct error *error);
int aws_metadata_region(struct http_engine *http, const struct cancel *cancel, char **region, struct error *error);

#endif
