/* A private RSA key made for tests and used nowhere else. */
#ifndef TESTS_SUPPORT_RSA_KEY_H
#define TESTS_SUPPORT_RSA_KEY_H

static const char rsa_key[] = "-----BEGIN PRIVATE KEY-----\n"
                              "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQCT1Uf3W7WYk1px\n"
                              "5gxE9Mwa/+p4YHNkYWfieluFGmdho0F6bGOsjo+FNGiBYlXavuycJzOj/DehuPcl\n"
                              "0qHkL1n6+ZlXZ0jOO1hzf+pqCrrf1gFsdOH3xPQqeY9M2OJXp+F0N6doLL1p7F/I\n"
                              "GGw5u6x5+YLIJuuq0uHAUemCYsp4fir6BgXS6czyAN0Qt4bPdOcqASgC+KyPyMFt\n"
                              "U0INI/HhJWk53iuFaUAQsrPWD0b46qoSWdWoWBLLKWCzihGE3IWsHQGzhAQIlEYc\n"
                              "zJeeJWLbXKh6sGaLGpLZ+OuDJRpdGO8g8df02uY5zTKU5n0H1wpovzXKBv4WCw41\n"
                              "e76xb53jAgMBAAECggEAARNmp8+lNb51c/pkIbkhSuEBpm12ZdmFGQpN4GvNOZej\n"
                              "6nTWjYj37vk/kwolo7z1M2BydDay6SsraXtkg81hqwwOZkvbX8anPRkS6plDOCGp\n"
                              "LZASIFLiIif3Y5DNRyXKojeWYKAm1jOiuNuH1zsG94tZ2js/pZ2PXEJ22kPvYHT4\n"
                              "NY9zsGf7faFn696HkAW2a+6C/yUqH+jLsfC4vxqR78zE3wB5JBFapF8IQ8lk2gX6\n"
                              "+WGpf1JoofZEnnuHFhIrS+lUblesbgoMUYww6e6NuOeYcO3oUo1k0I/vRW6JsUBB\n"
                              "aohNmArtWIiJG/5p1KxjgDJuLF+XnAw4vQA2xc/X4QKBgQDMp+DaiHRfcalEFUNS\n"
                              "Y0tRSARJGtalH5un52o0GmHXEFCG97zKpN44st5r8BOilRQbQNE5l3cAw1LFRm/X\n"
                              "NEpdNBLvsG8H8rZSJqqeQdm3D+Aqq8Nstqz2DMJKX/Wj9AJSVXSu9DnwwrSGUe/6\n"
                              "1fTB3WzQSaD2hqXU4VKqv3d+XwKBgQC46/B588Se0TTmsuosPkPw5cfznIdORPRC\n"
                              "ce7Z5bCtBWz4Z6C4ETOQ5miVJ4f3tHYTfGkwPgT7kBDpfFxA8N73YQE8lBxkUHj/\n"
                              "ti5k/SA9O2ldcTcloUOPyf08p3WfYXqGkCn3rZef/fgyknqm0Xt+1BXc+OrauZHk\n"
                              "Uh2a3Q6G/QKBgQCOeb0/RkoF/EIDxO3GWJwhrQpWvpl6AURDIwc72LYOnCwDmkrT\n"
                              "pO2T+WqBKHTy9eg2hOxjtL/DRzfDYSMRZjTzKAKa3XCezukAzixv2pYwLJw5+LQn\n"
                              "ZhGJhh5o2t9O0dwf56BBAIOpylMVQ8vXC8bGhFlxtCCcH+cpCeicOIl+7wKBgA8P\n"
                              "2KR2QHuXGrH3vK8h2zLR5HlpNHQhlaub0BKbbMqK+Jc7CZI0hHi266nKcH6yijOI\n"
                              "HKE7S/iZgWcjI/h+JgsMMaeXgMCC9XgOhLThETErl6duw0kjW3dowmGgWipDLFGt\n"
                              "iF2OHB2B+CdWWvsfcOmhqK448BgkqUdpkNO+UaKZAoGAfLeQdIOoxZ5/kriERjc3\n"
                              "3IkIPvb21XQHknUuiJsrrd8nufcRtRnzXmVUfH/ManRdQ9cUrAA9HlZL9ZUYbGo/\n"
                              "7EUO0CvKmymbypCApcfzz1nF9z1Lxm4GYPZ8q1nlq5JsEzbBzQdh0zt/lGYvgCXQ\n"
                              "OcmoP6BpN+qBw0OdxjCs+QY=\n"
                              "-----END PRIVATE KEY-----\n";

#endif
