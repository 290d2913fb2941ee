# SPDX-License-Identifier: Apache-2.0
"""The rows of the matrix, a group a file; kvseal.workload.matrix.cases puts them together."""
