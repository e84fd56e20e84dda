// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What most tests include, for tests/rules.am. No #pragma once, which g++ does not want in what it reads ahead.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.h"
