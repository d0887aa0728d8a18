#!/usr/bin/env bash
# Certificates for hosts.tls (docs/hosts.md): an authority, and for each host a certificate that names its addresses.
#
#     bash examples/host_certificates.sh FOLDER NAME=ADDRESS[,ADDRESS ...] ...
#     bash examples/host_certificates.sh certificates h0=10.0.0.2 h1=10.0.0.3,fd00::3 etcd=10.0.0.1
#
# FOLDER gets ca.crt and ca.key once, and NAME.crt and NAME.key each time, so the same call renews them. An address is an IP
# or a DNS name. A certificate is for servers and clients, and holds for DAYS (365). Keep ca.key off the hosts.
set -euo pipefail
usage() { sed -n '4,5s/^# *//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
folder=$1
shift
for host in "$@"; do
  [[ $host =~ ^[A-Za-z0-9._-]+=[A-Za-z0-9.:_-]+(,[A-Za-z0-9.:_-]+)*$ && ${host%%=*} != ca ]] || { echo "not NAME=ADDRESS: $host" >&2; usage; }
done
umask 077
mkdir -p "$folder"
trap 'rm -f "$folder"/*.new' EXIT
new_key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)

if [ ! -e "$folder/ca.key" ]; then
  openssl req -x509 -days 3650 -subj "/O=tensorcast hosts" -addext "keyUsage=critical,keyCertSign,cRLSign" "${new_key[@]}" \
    -keyout "$folder/ca.key.new" -out "$folder/ca.crt" 2>/dev/null
  mv "$folder/ca.key.new" "$folder/ca.key"
fi
for host in "$@"; do
  name=${host%%=*} names=
  for address in $(tr , ' ' <<<"${host#*=}"); do
    if [[ $address =~ ^[0-9.]+$|: ]]; then names+=,IP:$address; else names+=,DNS:$address; fi
  done
  openssl req -subj "/O=tensorcast hosts/OU=$name" "${new_key[@]}" -keyout "$folder/$name.key.new" 2>/dev/null |
    openssl x509 -req -days "${DAYS:-365}" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -out "$folder/$name.crt.new" -extfile <(
      printf '%s\n' "subjectAltName=${names#,}" "extendedKeyUsage=serverAuth,clientAuth" "basicConstraints=critical,CA:FALSE"
    ) 2>/dev/null || { echo "$host: openssl refuses it" >&2; exit 1; }
  mv "$folder/$name.key.new" "$folder/$name.key"
  mv "$folder/$name.crt.new" "$folder/$name.crt"
  echo "$folder/$name.crt: ${names#,}"
done
chmod 644 "$folder"/*.crt
