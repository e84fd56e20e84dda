// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Catch2's version 2 is compiled here, all of it: unoptimized in 17 s, optimized in 32.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O0")
#endif
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
int main(int argc, char* argv[]) { return Catch::Session().run(argc, argv); }
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
