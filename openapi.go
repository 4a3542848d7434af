// Package gapless holds what belongs to the whole program: the description of
// its HTTP interface. The program itself is cmd/gapless.
package gapless

import _ "embed"

// OpenAPI is openapi.yaml, the description of every route, as the gateway
// serves it at /openapi.yaml. It must not be changed.
//
//go:embed openapi.yaml
var OpenAPI []byte
