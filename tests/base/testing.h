/* cmocka with what it wants included before it. */
#ifndef TESTS_BASE_TESTING_H
#define TESTS_BASE_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
