@echo off
rem kubectl 1.26 or newer runs this to complete what follows "kubectl di".
kubectl-di.exe __complete %*
