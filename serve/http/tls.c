/* Checks certificates and keys with GnuTLS, and keeps those that connections use. */
#include "tls.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A certificate with its key, as GnuTLS uses them. */
typedef struct credentials {
    struct credentials *next; /* an older one */
    gnutls_certificate_credentials_t pair;
    int64_t expires_at; /* seconds since 1970 */
} credentials;

struct http_tls {
    char *cert, *key; /* the first ones, in PEM's format */

    pthread_mutex_t lock;
    credentials *latest; /* guarded by `lock`; its target is constant */
};

/* ---- Checks ---- */

static gnutls_datum_t datum(const tls_file *file) {
    return (gnutls_datum_t){.data = (unsigned char *)file->text, .size = (unsigned)strlen(file->text)};
}

static cl_status fail(const char *option, const tls_file *file, int failure, const char *fix, cl_error *error) {
    if (failure == GNUTLS_E_MEMORY_ERROR) return cl_fail(error, CL_ERR_NOMEM, "no memory for the certificate");
    return cl_fail(error, CL_ERR_FORMAT, "--%s: %.200s: GnuTLS says '%s'; %s", option, file->path, gnutls_strerror(failure),
                   fix);
}

/* Whether the file holds certificates, of which *expires_at is when the first one does. */
static cl_status check_cert(const tls_file *cert, int64_t *expires_at, cl_error *error) {
    const gnutls_datum_t text = datum(cert);
    gnutls_x509_crt_t *list = NULL;
    unsigned n = 0;
    const int failure = gnutls_x509_crt_list_import2(&list, &n, &text, GNUTLS_X509_FMT_PEM, 0);
    if (failure < 0) return fail("tls-cert", cert, failure, "name a file with a certificate in PEM's format", error);
    *expires_at = gnutls_x509_crt_get_expiration_time(list[0]);
    for (unsigned i = 0; i < n; i++) gnutls_x509_crt_deinit(list[i]);
    gnutls_free(list);
    return CL_OK;
}

/* Whether the file holds a private key that needs no password. */
static cl_status check_key(const tls_file *key, cl_error *error) {
    const gnutls_datum_t text = datum(key);
    gnutls_x509_privkey_t parsed;
    int failure = gnutls_x509_privkey_init(&parsed);
    if (failure >= 0) {
        failure = gnutls_x509_privkey_import2(parsed, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
        gnutls_x509_privkey_deinit(parsed);
    }
    if (failure >= 0) return CL_OK;
    if (failure == GNUTLS_E_DECRYPTION_FAILED || strstr(key->text, "ENCRYPTED"))
        return cl_fail(error, CL_ERR_FORMAT,
                       "--tls-key: %.200s: the key is encrypted; write one without a password by 'openssl pkey -in FILE -out "
                       "NEW', and name that",
                       key->path);
    return fail("tls-key", key, failure, "name a file with a private key in PEM's format", error);
}

static void credentials_free(credentials *c) {
    if (c->pair) gnutls_certificate_free_credentials(c->pair);
    free(c);
}

static cl_status credentials_create(credentials **created, const tls_file *cert, const tls_file *key, cl_error *error) {
    credentials *c = calloc(1, sizeof *c);
    if (!c || gnutls_certificate_allocate_credentials(&c->pair) < 0) {
        free(c);
        return cl_fail(error, CL_ERR_NOMEM, "no memory for the certificate");
    }
    const gnutls_datum_t cert_text = datum(cert), key_text = datum(key);
    cl_status status = check_cert(cert, &c->expires_at, error);
    if (status == CL_OK) status = check_key(key, error);
    if (status == CL_OK) {
        const int failure = gnutls_certificate_set_x509_key_mem(c->pair, &cert_text, &key_text, GNUTLS_X509_FMT_PEM);
        if (failure == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
            status = cl_fail(error, CL_ERR_FORMAT,
                             "--tls-key: %.200s: the key does not belong to the certificate in %.200s; name the key with which "
                             "the certificate was requested",
                             key->path, cert->path);
        else if (failure < 0)
            status = fail("tls-cert", cert, failure, "name a certificate for a TLS server", error);
    }
    if (status == CL_OK)
        *created = c;
    else
        credentials_free(c);
    return status;
}

/* ---- Life ---- */

cl_status tls_create(http_tls **created, const tls_file *cert, const tls_file *key, cl_error *error) {
    *created = NULL;
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return cl_fail(
            error, CL_ERR_UNSUPPORTED,
            "libmicrohttpd was built without TLS; leave out --tls-cert and --tls-key, and put a proxy before the server");
    http_tls *t = calloc(1, sizeof *t);
    if (!t) return cl_fail(error, CL_ERR_NOMEM, "no memory for the certificate");
    pthread_mutex_init(&t->lock, NULL);
    t->cert = strdup(cert->text);
    t->key = strdup(key->text);
    const cl_status status = t->cert && t->key ? credentials_create(&t->latest, cert, key, error)
                                               : cl_fail(error, CL_ERR_NOMEM, "no memory for the certificate");
    if (status == CL_OK)
        *created = t;
    else
        tls_destroy(&t);
    return status;
}

void tls_destroy(http_tls **address) {
    http_tls *t = address ? *address : NULL;
    if (!t) return;
    *address = NULL;
    while (t->latest) {
        credentials *c = t->latest;
        t->latest = c->next;
        credentials_free(c);
    }
    pthread_mutex_destroy(&t->lock);
    free(t->cert);
    free(t->key);
    free(t);
}

cl_status tls_replace(http_tls *t, const tls_file *cert, const tls_file *key, cl_error *error) {
    credentials *c;
    const cl_status status = credentials_create(&c, cert, key, error);
    if (status != CL_OK) return status;
    pthread_mutex_lock(&t->lock);
    c->next = t->latest;
    t->latest = c;
    pthread_mutex_unlock(&t->lock);
    return CL_OK;
}

/* ---- Use ---- */

static const credentials *latest(http_tls *t) {
    pthread_mutex_lock(&t->lock);
    const credentials *c = t->latest;
    pthread_mutex_unlock(&t->lock);
    return c;
}

void tls_use(http_tls *t, void *session) { gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, latest(t)->pair); }

const char *tls_cert(const http_tls *t) { return t->cert; }

const char *tls_key(const http_tls *t) { return t->key; }

int64_t tls_expires_at(http_tls *t) { return latest(t)->expires_at; }
